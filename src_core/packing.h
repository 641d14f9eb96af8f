// Packed layouts: how matrices lie in memory for the kernels.
//
// A packed B is made of tiles of kTileRows = 8 rows. Within a tile, `inner` consecutive bytes of k of
// row 0 are followed by those of row 1, ... row 7, then the next `inner` bytes of k ("r8k4", "r8k8"):
//
//   B[n][k], 8 rows of a tile, inner = 4                 packed tile (32 bytes per step of 4 k)
//        k: 0 1 2 3 | 4 5 6 7 | ...
//   row 0   a a a a   i i i i                            a a a a b b b b c c c c ... h h h h
//   row 1   b b b b   j j j j                  ->        i i i i j j j j ...
//    ...
//   row 7   h h h h   ...
//
//   byte(n, k) = (n/8) * tile_stride + (k/inner) * 8*inner + (n%8) * inner + k%inner
//
// A 32-byte vector of r8k4 holds 4 k of 8 rows: a broadcast of 4 activation bytes against it leaves
// one row per 32-bit lane (SDOT by element on ARM, multiply-add chains on AVX2). r8k8 gives SMMLA its
// 2 rows x 8 bytes in each 16-byte register, and one 64-byte load of AVX512 8 rows x 8 bytes.
//
//   use        rows (n)             k                     tile_stride
//   K block    256 keys             head_dim              8 * head_dim
//   V block    head_dim channels    256 keys              8 * 256
//   weights    out_features         in_features           below
//
// Weights are r8k4 with their scales in the stream: for each tile, for each group of 32 k
//
//   w4g32   | d x8 (f16) |             128 bytes of nibbles |   144 bytes, 4.5 bit per weight
//   w4g32a  | d x8 (f16) | mn x8 (f16) | 128 bytes of nibbles |   160 bytes, 5 bit
//   w8g32   | d x8 (f16) |             256 bytes r8k4        |   272 bytes, 8.5 bit
//
// The nibbles are planar: byte v*32 + r*4 + b (v = 0..3) holds q[r][4v+b] low and q[r][16+4v+b] high,
// so that & 0x0F and >> 4 of one vector give two r8k4 vectors. Nibbles are unsigned, 0..15.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel_table.h"
#include "shared_bytes.h"

namespace intattention {

enum class WeightFormat : uint8_t { kW4G32, kW4G32A, kW8G32 };

WeightFormat weight_format_from_name(const char* name);  // throws InvalidArgument
const char* weight_format_name(WeightFormat format);

// Names the weight layout drawn above in files; another drawing needs another name.
constexpr const char* kWeightLayout = "r8k4p";

// Bytes of one group of 32 k in a tile of 8 rows.
size_t packed_group_bytes(WeightFormat format);

// Bytes of a packed matrix. Throws InvalidArgument unless both are 1 .. 2^31 and in_features a multiple of 32.
size_t packed_weights_bytes(WeightFormat format, size_t out_features, size_t in_features);

struct B8Layout {
  uint32_t inner;      // 4 or 8
  size_t tile_stride;  // bytes
};

inline size_t b8_offset(const B8Layout& layout, size_t n, size_t k) {
  return (n / kTileRows) * layout.tile_stride + (k / layout.inner) * kTileRows * layout.inner +
         (n % kTileRows) * layout.inner + k % layout.inner;
}

// b row-major [n][k] -> tiles; k is padded to a multiple of inner and n to one of 8 with zeros.
void pack_b8(size_t n, size_t k, const int8_t* b, size_t ldb, const B8Layout& layout, int8_t* packed);
size_t pack_b8_bytes(size_t n, const B8Layout& layout);

// What a model file means, before packing ("logical weights"), row-major [out_features][groups].
struct LogicalWeights {
  WeightFormat format;
  size_t out_features, in_features;
  const uint8_t* q;       // w4: [n][k/32][16], byte j = element j low, j + 16 high; w8: s8 [n][k]
  const uint16_t* scale;  // f16 bits [n][k/32]
  const uint16_t* min;    // f16 bits [n][k/32], w4g32a only
};

// Weights in a kernel's layout; knows the layout so that a table can refuse one that is not its own.
struct PackedWeights {
  WeightFormat format;
  uint32_t inner;  // always 4 for now; see LinearW4A8
  size_t out_features, in_features;
  SharedBytes data;

  size_t tile_bytes() const { return in_features / kGroup * packed_group_bytes(format); }
  const uint8_t* tile(size_t index) const { return data.data() + index * tile_bytes(); }
};

PackedWeights pack_weights(const LogicalWeights& logical);

// Weights that lie packed in memory already; nothing is copied, and scales are not looked at. Throws
// InvalidArgument unless `data` has the alignment and exactly the size that the kernels expect.
PackedWeights borrow_packed_weights(WeightFormat format, size_t out_features, size_t in_features, SharedBytes data);

// One row as float32: y[k] = d*q + mn (w4), d*q (w8). y holds in_features floats.
void dequantize_packed_row(const PackedWeights& weights, size_t row, float* y);

float f16_to_f32(uint16_t bits);

}  // namespace intattention
