// Portable int8-weight x int8-activation linear on packed tiles (packing.h).
#include <cmath>
#include <cstring>

#include "packing.h"
#include "portable/kernels.h"

namespace intattention {
namespace {

void group_sums(const uint8_t* quants, const int8_t* x, int32_t* isum) {
  for (size_t r = 0; r < kTileRows; ++r) isum[r] = 0;
  for (size_t kk = 0; kk < kGroup; kk += 4)
    for (size_t r = 0; r < kTileRows; ++r)
      for (size_t b = 0; b < 4; ++b) isum[r] += static_cast<int8_t>(quants[kk * kTileRows + r * 4 + b]) * x[kk + b];
}

float load_f16(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return f16_to_f32(bits);
}

}  // namespace

void gemm_w8a8_portable(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, float* y,
                        size_t ldy) {
  const size_t groups = k / kGroup, group_bytes = packed_group_bytes(WeightFormat::kW8G32);
  for (size_t n0 = 0; n0 < n; n0 += kTileRows, weights += groups * group_bytes)
    for (size_t i = 0; i < m; ++i) {
      float sum[kTileRows] = {};
      for (size_t g = 0; g < groups; ++g) {
        const uint8_t* group = weights + g * group_bytes;
        int32_t isum[kTileRows];
        group_sums(group + 16, x->q + i * k + g * kGroup, isum);
        const float sx = x->scale[i * groups + g];
        for (size_t r = 0; r < kTileRows; ++r)
          sum[r] = std::fma(load_f16(group + 2 * r), sx * static_cast<float>(isum[r]), sum[r]);
      }
      for (size_t r = 0; r < kTileRows && n0 + r < n; ++r) y[i * ldy + n0 + r] = sum[r];
    }
}

}  // namespace intattention
