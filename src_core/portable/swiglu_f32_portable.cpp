// Portable SwiGLU: silu(gate) * up.
#include "exp_f32.h"
#include "portable/kernels.h"

namespace intattention {

void swiglu_f32_portable(size_t n, const float* gate, const float* up, float* y) {
  for (size_t i = 0; i < n; ++i) y[i] = (gate[i] / (1.0f + exp_f32(-gate[i]))) * up[i];
}

}  // namespace intattention
