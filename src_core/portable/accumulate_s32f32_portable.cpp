// Portable accumulation of a key block's integer PV sums into the float output.
#include "portable/kernels.h"

namespace intattention {

void accumulate_s32f32_portable(size_t n, float decay, float scale, const int32_t* sum, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = out[i] * decay + static_cast<float>(sum[i]) * scale;
}

}  // namespace intattention
