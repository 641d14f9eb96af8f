// float32 -> float16, nearest even: FCVTN, 2 cycles of V0 per 4 on Cortex-A76. Armv8-A baseline; used once per call on
// q, k and v.
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {

void narrow_f32f16_neon(size_t n, const float* x, uint16_t* y) {
  for (size_t i = 0; i < n; i += 8) {
    const float16x8_t half = vcvt_high_f16_f32(vcvt_f16_f32(vld1q_f32(x + i)), vld1q_f32(x + i + 4));
    vst1q_u16(y + i, vreinterpretq_u16_f16(half));
  }
}

}  // namespace intattention
