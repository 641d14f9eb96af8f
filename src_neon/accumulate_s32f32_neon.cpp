// Accumulation of a key block's integer PV sums into the float output with NEON; no FMLA (docs/numerics.md 6).
#include <arm_neon.h>

#include "kernels.h"

namespace intattention {

void accumulate_s32f32_neon(size_t n, float decay, float scale, const int32_t* sum, float* out) {
  for (size_t i = 0; i < n; i += 4) {
    const float32x4_t add = vmulq_n_f32(vcvtq_f32_s32(vld1q_s32(sum + i)), scale);
    vst1q_f32(out + i, vaddq_f32(vmulq_n_f32(vld1q_f32(out + i), decay), add));
  }
}

}  // namespace intattention
