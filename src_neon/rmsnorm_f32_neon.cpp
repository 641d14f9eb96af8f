// y[i] = (x[i] * (1 / sqrt(mean(x^2) + eps))) * weight[i].
//
// The sum of squares runs in 8 lanes, lane l adding x[8i+l]^2, as two registers:
//   sum0 = | l0 l1 l2 l3 |   sum1 = | l4 l5 l6 l7 |
//   sum0 + sum1 = | l0+l4  l1+l5  l2+l6  l3+l7 |, then lane 0 + lane 2, lane 1 + lane 3, and the two added.
// The square root and the reciprocal are the exact scalar FSQRT and FDIV, once per row.
//
// Bound on Cortex-A76: the two chains of FADD (latency 2 per 8 elements); two rows' worth of a hidden
// size of 576 is under 500 cycles.
//
// Rejected: FRSQRTE with Newton steps (not the same bits as a division) and more than two chains (the
// order of the sum is part of the definition).
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {

void rmsnorm_f32_neon(size_t n, const float* x, const float* weight, float eps, float* y) {
  float32x4_t sum0 = vdupq_n_f32(0.0f), sum1 = sum0;
  for (size_t i = 0; i < n; i += 8) {
    const float32x4_t x0 = vld1q_f32(x + i), x1 = vld1q_f32(x + i + 4);
    sum0 = vaddq_f32(sum0, vmulq_f32(x0, x0));
    sum1 = vaddq_f32(sum1, vmulq_f32(x1, x1));
  }
  const float32x4_t sums = vaddq_f32(sum0, sum1);
  const float sum =
      (vgetq_lane_f32(sums, 0) + vgetq_lane_f32(sums, 2)) + (vgetq_lane_f32(sums, 1) + vgetq_lane_f32(sums, 3));
  const float mean = sum / static_cast<float>(n) + eps;
  const float factor = 1.0f / vget_lane_f32(vsqrt_f32(vdup_n_f32(mean)), 0);
  for (size_t i = 0; i < n; i += 4) {
    vst1q_f32(y + i, vmulq_f32(vmulq_n_f32(vld1q_f32(x + i), factor), vld1q_f32(weight + i)));
  }
}

}  // namespace intattention
