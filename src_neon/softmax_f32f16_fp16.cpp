// One row of one key block of the float softmax with exp and probabilities in float16, 16 logits per step.
//
//   u = (x - max) * scale * log2(e) / 2       float32, then rounded to float16
//   2^u = 2^n * 2^r, n from adding 1.5 * 2^10 + 15 (its low bits are the exponent), 2^r of degree 3 (error 1e-4)
//   p = 2^u * 2^u                             down to the subnormals: 2^-24, where exp itself would end at 2^-14
//
// Halving costs one multiply and keeps weights between 2^-24 and 2^-14: thousands of them matter in long rows.
// The sum adds 4 probabilities in float16 and goes on in float32; it is the sum of the rounded ones, as PV sees them.
//
// Bound on Cortex-A76 per 16 logits: 4 FCVTN and 1 FCVTL at 2 cycles of V0, about 44 other operations on 2 pipes, in
// all some 26 cycles (float32: 32; facts 2.7 has 10 for float16 logits, which would cost the QK kernel its float32
// sums).
#include "kernels.h"
#include "softmax_inline.h"

namespace intattention {
namespace {

constexpr float kHalfLog2e = 0.72134752f;
constexpr float kLowest = -12.5f;  // 2^(2 * -12.5) rounds to zero

inline float16x8_t dup(float x) { return vdupq_n_f16(static_cast<float16_t>(x)); }

// (x - max) * factor of 8 logits in float16
inline float16x8_t exponents(const float* x, float32x4_t max, float32x4_t factor) {
  const float32x4_t low = vmulq_f32(vsubq_f32(vld1q_f32(x), max), factor);
  const float32x4_t high = vmulq_f32(vsubq_f32(vld1q_f32(x + 4), max), factor);
  return vcvt_high_f16_f32(vcvt_f16_f32(low), high);
}

// 4^u for u <= 0; 0 below kLowest. A NaN stays one.
inline float16x8_t exp4_nonpositive(float16x8_t u) {
  const float16x8_t shift = dup(1536.0f + 15.0f);
  const uint16x8_t underflow = vcltq_f16(u, dup(kLowest));
  const float16x8_t z = vaddq_f16(u, shift);
  const float16x8_t r = vsubq_f16(u, vsubq_f16(z, shift));
  float16x8_t p = vfmaq_f16(dup(2.422109594e-1f), dup(5.500893072e-2f), r);
  p = vfmaq_f16(dup(6.932829272e-1f), p, r);
  p = vfmaq_f16(dup(1.0f), p, r);
  p = vmulq_f16(p, vreinterpretq_f16_u16(vshlq_n_u16(vreinterpretq_u16_f16(z), 10)));
  return vreinterpretq_f16_u16(vbicq_u16(vreinterpretq_u16_f16(vmulq_f16(p, p)), underflow));
}

}  // namespace

void softmax_f32f16_fp16(size_t n, const float* logits, SoftmaxRow* row, uint16_t* probs) {
  const size_t begin = row->begin, end = row->end;
  row->max = visible_max(logits, begin, end, row->max);
  const float32x4_t max = vdupq_n_f32(row->max), factor = vdupq_n_f32(row->scale * kHalfLog2e);
  float32x4_t sum = vdupq_n_f32(0.0f);
  visible_groups(logits, begin, end, [&](const float* x, size_t j) {
    const float16x8_t p0 = exp4_nonpositive(exponents(x, max, factor));
    const float16x8_t p1 = exp4_nonpositive(exponents(x + 8, max, factor));
    vst1q_u16(probs + j, vreinterpretq_u16_f16(p0));
    vst1q_u16(probs + j + 8, vreinterpretq_u16_f16(p1));
    const float16x8_t pairs = vpaddq_f16(p0, p1);
    sum = vaddq_f32(sum, vcvt_f32_f16(vget_low_f16(vpaddq_f16(pairs, pairs))));
  });
  invisible_groups(n, begin, end, [&](size_t j) {
    vst1q_u16(probs + j, vdupq_n_u16(0));
    vst1q_u16(probs + j + 8, vdupq_n_u16(0));
  });
  row->sum = vaddvq_f32(sum);
}

}  // namespace intattention
