// Walsh-Hadamard transform; the formula is in kernel_table.h.
//
// Halves 1 and 2 lie within a vector of 4: of two vectors UZP and ZIP bring the partners together, so that each half is
// one FADD and one FSUB per pair of vectors. 2 log2(size) operations and half as many loads and stores per 8 floats.
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {

void hadamard_f32_neon(size_t n, size_t size, const float* x, float* y) {
  for (size_t i = 0; i < n; i += 8) {
    const float32x4_t v0 = vld1q_f32(x + i), v1 = vld1q_f32(x + i + 4);
    // half 1: x0 x2 x4 x6 and x1 x3 x5 x7
    const float32x4_t even = vuzp1q_f32(v0, v1), odd = vuzp2q_f32(v0, v1);
    const float32x4_t sum = vaddq_f32(even, odd), difference = vsubq_f32(even, odd);
    // half 2: of each, elements 0 2 against 1 3
    const float32x4_t a = vuzp1q_f32(sum, difference), b = vuzp2q_f32(sum, difference);
    const float32x4_t plus = vaddq_f32(a, b), minus = vsubq_f32(a, b);
    // plus = y0 y4 y1 y5, minus = y2 y6 y3 y7
    const float32x4_t low = vuzp1q_f32(plus, minus), high = vuzp2q_f32(plus, minus);
    // half 4: y0 y1 y2 y3 against y4 y5 y6 y7
    vst1q_f32(y + i, vaddq_f32(low, high));
    vst1q_f32(y + i + 4, vsubq_f32(low, high));
  }
  for (size_t half = 8; half < size; half *= 2)
    for (size_t first = 0; first < n; first += 2 * half)
      for (size_t i = first; i < first + half; i += 4) {
        const float32x4_t a = vld1q_f32(y + i), b = vld1q_f32(y + i + half);
        vst1q_f32(y + i, vaddq_f32(a, b));
        vst1q_f32(y + i + half, vsubq_f32(a, b));
      }
}

}  // namespace intattention
