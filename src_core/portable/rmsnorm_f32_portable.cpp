// Portable RMSNorm with the fixed 8-lane summation of docs/numerics.md section 6.
#include <cmath>

#include "portable/kernels.h"

namespace intattention {

void rmsnorm_f32_portable(size_t n, const float* x, const float* weight, float eps, float* y) {
  float lane[8] = {};
  for (size_t i = 0; i < n; i += 8)
    for (size_t l = 0; l < 8; ++l) lane[l] = lane[l] + x[i + l] * x[i + l];
  const float sum = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  const float inverse = 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
  for (size_t i = 0; i < n; ++i) y[i] = (x[i] * inverse) * weight[i];
}

}  // namespace intattention
