// Portable int4-weight x int8-activation linear on packed tiles (packing.h).
#include <cstring>

#include "packing.h"
#include "portable/kernels.h"

namespace intattention {
namespace {

// Exact integer sums of one group for the 8 rows of a tile.
void group_sums(const uint8_t* quants, const int8_t* x, int32_t* isum) {
  for (size_t r = 0; r < kTileRows; ++r) isum[r] = 0;
  for (size_t v = 0; v < 4; ++v)
    for (size_t r = 0; r < kTileRows; ++r)
      for (size_t b = 0; b < 4; ++b) {
        const int32_t byte = quants[v * 32 + r * 4 + b];
        isum[r] += (byte & 0x0f) * x[4 * v + b] + (byte >> 4) * x[16 + 4 * v + b];
      }
}

float load_f16(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return f16_to_f32(bits);
}

}  // namespace

void gemm_w4a8_portable(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                        float* y, size_t ldy) {
  const size_t groups = k / kGroup;
  const size_t group_bytes = packed_group_bytes(has_min ? WeightFormat::kW4G32A : WeightFormat::kW4G32);
  for (size_t n0 = 0; n0 < n; n0 += kTileRows, weights += groups * group_bytes)
    for (size_t i = 0; i < m; ++i) {
      float sum[kTileRows] = {};
      for (size_t g = 0; g < groups; ++g) {
        const uint8_t* group = weights + g * group_bytes;
        int32_t isum[kTileRows];
        group_sums(group + (has_min ? 32 : 16), x->q + i * k + g * kGroup, isum);
        const float sx = x->scale[i * groups + g], ssum = x->scaled_sum[i * groups + g];
        for (size_t r = 0; r < kTileRows; ++r) {
          const float d = load_f16(group + 2 * r);
          const float minimum = has_min ? load_f16(group + 16 + 2 * r) : -8.0f * d;
          sum[r] = sum[r] + ((d * sx) * static_cast<float>(isum[r]) + minimum * ssum);
        }
      }
      for (size_t r = 0; r < kTileRows && n0 + r < n; ++r) y[i * ldy + n0 + r] = sum[r];
    }
}

}  // namespace intattention
