// Rotary embedding of one head vector in place: pairs (i, i + n/2),
//   a' = a*cos[i] - b*sin[i];  b' = b*cos[i] + a*sin[i]
// with four multiplications and two additions, each rounded (no FMLA: the bits would differ per ISA).
//
// Bound on Cortex-A76: 6 operations at 0.5 = 3 cycles per 4 pairs, 4 loads and 2 stores (1.0 each) beside them.
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {

void rope_f32_neon(size_t n, const float* cos, const float* sin, float* x) {
  const size_t half = n / 2;
  for (size_t i = 0; i < half; i += 4) {
    const float32x4_t a = vld1q_f32(x + i), b = vld1q_f32(x + half + i);
    const float32x4_t c = vld1q_f32(cos + i), s = vld1q_f32(sin + i);
    vst1q_f32(x + i, vsubq_f32(vmulq_f32(a, c), vmulq_f32(b, s)));
    vst1q_f32(x + half + i, vaddq_f32(vmulq_f32(b, c), vmulq_f32(a, s)));
  }
}

}  // namespace intattention
