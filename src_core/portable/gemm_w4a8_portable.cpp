// Portable int4-weight x int8-activation linear on packed tiles (packing.h).
#include <cmath>
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
        const float sx = x->scale[i * groups + g];
        const int32_t xsum = x->sum[i * groups + g], start = has_min ? 0 : -8 * xsum;
        for (size_t r = 0; r < kTileRows; ++r) {
          sum[r] = std::fma(load_f16(group + 2 * r), sx * static_cast<float>(isum[r] + start), sum[r]);
          if (has_min) sum[r] = std::fma(load_f16(group + 16 + 2 * r), sx * static_cast<float>(xsum), sum[r]);
        }
      }
      for (size_t r = 0; r < kTileRows && n0 + r < n; ++r) y[i * ldy + n0 + r] = sum[r];
    }
}

}  // namespace intattention
