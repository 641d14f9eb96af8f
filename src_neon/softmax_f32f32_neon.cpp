// One row of one key block of the float softmax; formula in kernel_table.h.
//
// exp: t = (x - max) * scale * log2(e), split as n + r by adding 1.5 * 2^23 + 127 (the low bits of the sum are the
// exponent of 2^n: no FCVTNS, which takes V0 for 2 cycles), a degree-5 polynomial for 2^r (relative error 9.2e-8).
//
// Bound on Cortex-A76: about 16 operations at 0.5 per 4 logits, SHL on V1 alone: 8 cycles per 4 (the ordinary form with
// two conversions takes 12).
#include "kernels.h"
#include "softmax_inline.h"

namespace intattention {
namespace {

constexpr float kLog2e = 1.44269504f;

// 2^t for t <= 0; 0 below 2^-126. A NaN stays one.
inline float32x4_t exp2_nonpositive(float32x4_t t) {
  const float32x4_t shift = vdupq_n_f32(12582912.0f + 127.0f);
  const uint32x4_t underflow = vcltq_f32(t, vdupq_n_f32(-126.0f));
  const float32x4_t z = vaddq_f32(t, shift);
  const float32x4_t r = vsubq_f32(t, vsubq_f32(z, shift));
  float32x4_t p = vdupq_n_f32(1.326472205e-3f);
  p = vfmaq_f32(vdupq_n_f32(9.671512997e-3f), p, r);
  p = vfmaq_f32(vdupq_n_f32(5.550733760e-2f), p, r);
  p = vfmaq_f32(vdupq_n_f32(2.402224208e-1f), p, r);
  p = vfmaq_f32(vdupq_n_f32(6.931469776e-1f), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
  p = vmulq_f32(p, vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(z), 23)));
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(p), underflow));
}

}  // namespace

void softmax_f32f32_neon(size_t n, const float* logits, SoftmaxRow* row, float* probs) {
  const size_t begin = row->begin, end = row->end;
  row->max = visible_max(logits, begin, end, row->max);
  const float32x4_t max = vdupq_n_f32(row->max), factor = vdupq_n_f32(row->scale * kLog2e);
  float32x4_t sum[2] = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)};
  visible_groups(logits, begin, end, [&](const float* x, size_t j) {
#pragma GCC unroll 4
    for (size_t h = 0; h < 4; ++h) {
      const float32x4_t p = exp2_nonpositive(vmulq_f32(vsubq_f32(vld1q_f32(x + 4 * h), max), factor));
      vst1q_f32(probs + j + 4 * h, p);
      sum[h % 2] = vaddq_f32(sum[h % 2], p);
    }
  });
  invisible_groups(n, begin, end, [&](size_t j) {
    for (size_t h = 0; h < 16; h += 4) vst1q_f32(probs + j + h, vdupq_n_f32(0.0f));
  });
  row->sum = vaddvq_f32(vaddq_f32(sum[0], sum[1]));
}

}  // namespace intattention
