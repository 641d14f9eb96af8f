#include "packing.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "error.h"

namespace intattention {
namespace {

constexpr size_t kScaleBytes = kTileRows * sizeof(uint16_t);
constexpr size_t kMaxDim = size_t{1} << 31;  // keeps every product of sizes within 64 bits
constexpr size_t kNibbleBytes = kTileRows * kGroup / 2;
static_assert(kScaleBytes + kNibbleBytes == 144 && kScaleBytes + kTileRows * kGroup == 272,
              "the layout drawn in packing.h");

bool has_min(WeightFormat format) { return format == WeightFormat::kW4G32A; }

// Byte within the group's quants and shift of element (row r of the tile, k of the group).
struct NibblePosition {
  size_t byte;
  unsigned shift;
};
NibblePosition nibble_position(size_t r, size_t k) {
  const size_t half = k % 16;
  return {half / 4 * 32 + r * 4 + half % 4, k < 16 ? 0u : 4u};
}

// Row r of a tile: 4 bytes of source at a time. A source byte of w4 holds the elements j and j + 16,
// which is what a byte of planar nibbles holds too.
void scatter_row(const uint8_t* q, size_t bytes, size_t r, uint8_t* quants) {
  for (size_t i = 0; i < bytes; i += 4) std::memcpy(quants + i * kTileRows + r * 4, q + i, 4);
}

uint16_t load_u16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

bool f16_is_finite(uint16_t bits) { return (bits & 0x7c00) != 0x7c00; }

void check_finite(const LogicalWeights& logical) {
  const size_t groups = logical.out_features * (logical.in_features / kGroup);
  for (size_t i = 0; i < groups; ++i) {
    const bool bad = !f16_is_finite(logical.scale[i]) || (logical.min != nullptr && !f16_is_finite(logical.min[i]));
    if (bad)
      throw InvalidArgument(message("weights: scale or minimum of row ", i / (logical.in_features / kGroup), ", group ",
                                    i % (logical.in_features / kGroup), " is not finite"));
  }
}

}  // namespace

WeightFormat weight_format_from_name(const char* name) {
  for (WeightFormat format : {WeightFormat::kW4G32, WeightFormat::kW4G32A, WeightFormat::kW8G32})
    if (std::strcmp(name, weight_format_name(format)) == 0) return format;
  throw InvalidArgument(message("weight format '", name, "' is unknown; known: w4g32, w4g32a, w8g32"));
}

const char* weight_format_name(WeightFormat format) {
  switch (format) {
    case WeightFormat::kW4G32:
      return "w4g32";
    case WeightFormat::kW4G32A:
      return "w4g32a";
    case WeightFormat::kW8G32:
      return "w8g32";
  }
  return "?";
}

size_t packed_group_bytes(WeightFormat format) {
  const size_t scales = has_min(format) ? 2 * kScaleBytes : kScaleBytes;
  return scales + (format == WeightFormat::kW8G32 ? kTileRows * kGroup : kNibbleBytes);
}

void pack_b8(size_t n, size_t k, const int8_t* b, size_t ldb, const B8Layout& layout, int8_t* packed) {
  std::memset(packed, 0, pack_b8_bytes(n, layout));
  for (size_t row = 0; row < n; ++row)
    for (size_t col = 0; col < k; ++col) packed[b8_offset(layout, row, col)] = b[row * ldb + col];
}

size_t pack_b8_bytes(size_t n, const B8Layout& layout) { return (n + kTileRows - 1) / kTileRows * layout.tile_stride; }

size_t packed_weights_bytes(WeightFormat format, size_t out_features, size_t in_features) {
  const bool in_range = out_features >= 1 && out_features <= kMaxDim && in_features >= 1 && in_features <= kMaxDim;
  if (!in_range || in_features % kGroup != 0)
    throw InvalidArgument(message("weights: shape (", out_features, ", ", in_features, "): expected 1 to ", kMaxDim,
                                  " each, and in_features a multiple of ", kGroup));
  const size_t tiles = (out_features + kTileRows - 1) / kTileRows;
  return tiles * (in_features / kGroup) * packed_group_bytes(format);
}

PackedWeights borrow_packed_weights(WeightFormat format, size_t out_features, size_t in_features, SharedBytes data) {
  const size_t expected = packed_weights_bytes(format, out_features, in_features);
  if (data.size() != expected)
    throw InvalidArgument(message("packed weights: ", data.size(), " bytes, ", weight_format_name(format), " (",
                                  out_features, ", ", in_features, ") has ", expected));
  const size_t misplaced = reinterpret_cast<uintptr_t>(data.data()) % AlignedBuffer::kAlignment;
  if (misplaced != 0)
    throw InvalidArgument(message("packed weights: the address lies ", misplaced, " bytes behind a multiple of ",
                                  AlignedBuffer::kAlignment));
  return PackedWeights{format, 4, out_features, in_features, std::move(data)};
}

PackedWeights pack_weights(const LogicalWeights& logical) {
  const size_t n = logical.out_features, k = logical.in_features;
  AlignedBuffer buffer(packed_weights_bytes(logical.format, n, k));
  check_finite(logical);
  const size_t groups = k / kGroup, group_bytes = packed_group_bytes(logical.format);
  const bool w8 = logical.format == WeightFormat::kW8G32, with_min = has_min(logical.format);
  const size_t source_bytes = w8 ? kGroup : kGroup / 2;
  for (size_t row = 0; row < n; ++row) {
    const size_t r = row % kTileRows;
    for (size_t g = 0; g < groups; ++g) {
      uint8_t* group = buffer.data() + (row / kTileRows * groups + g) * group_bytes;
      const size_t source = row * groups + g;
      std::memcpy(group + r * 2, logical.scale + source, 2);
      if (with_min) std::memcpy(group + kScaleBytes + r * 2, logical.min + source, 2);
      uint8_t* quants = group + (with_min ? 2 : 1) * kScaleBytes;
      scatter_row(logical.q + source * source_bytes, source_bytes, r, quants);
    }
  }
  return PackedWeights{logical.format, 4, n, k, SharedBytes(std::move(buffer))};
}

void dequantize_packed_row(const PackedWeights& weights, size_t row, float* y) {
  const size_t r = row % kTileRows, group_bytes = packed_group_bytes(weights.format);
  const bool with_min = has_min(weights.format);
  const uint8_t* group = weights.tile(row / kTileRows);
  for (size_t g = 0; g < weights.in_features / kGroup; ++g, group += group_bytes, y += kGroup) {
    const float d = f16_to_f32(load_u16(group + r * 2));
    const uint8_t* quants = group + (with_min ? 2 : 1) * kScaleBytes;
    if (weights.format == WeightFormat::kW8G32) {
      for (size_t k = 0; k < kGroup; ++k)
        y[k] = d * static_cast<float>(static_cast<int8_t>(quants[k / 4 * 32 + r * 4 + k % 4]));
      continue;
    }
    const float minimum = with_min ? f16_to_f32(load_u16(group + kScaleBytes + r * 2)) : -8.0f * d;
    for (size_t k = 0; k < kGroup; ++k) {
      const NibblePosition at = nibble_position(r, k);
      y[k] = d * static_cast<float>((quants[at.byte] >> at.shift) & 0x0f) + minimum;
    }
  }
}

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact in float32
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -value : value;
  }
  const uint32_t wide = exponent == 0x1f ? 0xffu : exponent + 112;  // 127 - 15
  const uint32_t word = sign | wide << 23 | fraction << 13;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

}  // namespace intattention
