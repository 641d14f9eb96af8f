// Walsh-Hadamard transform; the formula is in kernel_table.h.
//
// Halves 1 and 2 lie within a vector of 4: of two vectors UZP brings the partners together, so that each half is one
// FADD and one FSUB per pair of vectors. Halves 8 to 32 lie between the 16 vectors that one pass keeps in registers, so
// head_dim 64 is read and written once, 128 twice.
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {
namespace {

// Halves 1, 2 and 4 of 8 elements.
inline void within_pair(float32x4_t& v0, float32x4_t& v1) {
  // half 1: x0 x2 x4 x6 and x1 x3 x5 x7
  const float32x4_t even = vuzp1q_f32(v0, v1), odd = vuzp2q_f32(v0, v1);
  const float32x4_t sum = vaddq_f32(even, odd), difference = vsubq_f32(even, odd);
  // half 2: of each, elements 0 2 against 1 3
  const float32x4_t a = vuzp1q_f32(sum, difference), b = vuzp2q_f32(sum, difference);
  const float32x4_t plus = vaddq_f32(a, b), minus = vsubq_f32(a, b);
  // plus = y0 y4 y1 y5, minus = y2 y6 y3 y7
  const float32x4_t low = vuzp1q_f32(plus, minus), high = vuzp2q_f32(plus, minus);
  // half 4: y0 y1 y2 y3 against y4 y5 y6 y7
  v0 = vaddq_f32(low, high);
  v1 = vsubq_f32(low, high);
}

// Halves 1 to 2 * Vectors of every 4 * Vectors elements.
template <size_t Vectors>  // of the 32 registers
void in_registers(size_t n, const float* x, float* y) {
  for (size_t first = 0; first < n; first += 4 * Vectors) {
    float32x4_t v[Vectors];
#pragma GCC unroll 16
    for (size_t i = 0; i < Vectors; ++i) v[i] = vld1q_f32(x + first + 4 * i);
#pragma GCC unroll 8
    for (size_t i = 0; i < Vectors; i += 2) within_pair(v[i], v[i + 1]);
#pragma GCC unroll 3
    for (size_t half = 2; half < Vectors; half *= 2)
#pragma GCC unroll 16
      for (size_t i = 0; i < Vectors; ++i)
        if ((i & half) == 0) {
          const float32x4_t a = v[i], b = v[i + half];
          v[i] = vaddq_f32(a, b);
          v[i + half] = vsubq_f32(a, b);
        }
#pragma GCC unroll 16
    for (size_t i = 0; i < Vectors; ++i) vst1q_f32(y + first + 4 * i, v[i]);
  }
}

}  // namespace

void hadamard_f32_neon(size_t n, size_t size, const float* x, float* y) {
  (size == 16 ? in_registers<4> : size == 32 ? in_registers<8> : in_registers<16>)(n, x, y);
  for (size_t half = 64; half < size; half *= 2)
    for (size_t first = 0; first < n; first += 2 * half)
      for (size_t i = first; i < first + half; i += 4) {
        const float32x4_t a = vld1q_f32(y + i), b = vld1q_f32(y + i + half);
        vst1q_f32(y + i, vaddq_f32(a, b));
        vst1q_f32(y + i + half, vsubq_f32(a, b));
      }
}

}  // namespace intattention
