// Portable Walsh-Hadamard transform; the formula is in kernel_table.h.
#include <cstring>

#include "portable/kernels.h"

namespace intattention {

void hadamard_f32_portable(size_t n, size_t size, const float* x, float* y) {
  if (y != x) std::memcpy(y, x, n * sizeof(float));
  for (size_t half = 1; half < size; half *= 2)
    for (size_t first = 0; first < n; first += 2 * half)
      for (size_t i = first; i < first + half; ++i) {
        const float a = y[i], b = y[i + half];
        y[i] = a + b;
        y[i + half] = a - b;
      }
}

}  // namespace intattention
