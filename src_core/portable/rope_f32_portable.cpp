// Portable rotary embedding of one head vector, pairs (i, i + n/2).
#include "portable/kernels.h"

namespace intattention {

void rope_f32_portable(size_t n, const float* cos, const float* sin, float* x) {
  float* second = x + n / 2;
  for (size_t i = 0; i < n / 2; ++i) {
    const float a = x[i], b = second[i];
    x[i] = a * cos[i] - b * sin[i];
    second[i] = b * cos[i] + a * sin[i];
  }
}

}  // namespace intattention
