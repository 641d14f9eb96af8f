// Walsh-Hadamard transform with AVX2; the formula is in kernel_table.h.
//
// Halves 1, 2 and 4 lie within a vector of 8: the partners are swapped, and the element that subtracts itself from its
// partner is negated: a + b = swapped + x, a - b = swapped + (-x), as swapped + x * (+-1) in one FMA, which rounds once
// like the sum. Halves 8 to 32 lie between the 8 vectors that one pass keeps in registers, so head_dim 64 is read and
// written once, 128 twice.
#include <immintrin.h>

#include "kernels.h"

namespace intattention {
namespace {

inline __m256 within_vector(__m256 x) {
  x = _mm256_fmadd_ps(x, _mm256_setr_ps(1, -1, 1, -1, 1, -1, 1, -1), _mm256_permute_ps(x, 0xb1));
  x = _mm256_fmadd_ps(x, _mm256_setr_ps(1, 1, -1, -1, 1, 1, -1, -1), _mm256_permute_ps(x, 0x4e));
  return _mm256_fmadd_ps(x, _mm256_setr_ps(1, 1, 1, 1, -1, -1, -1, -1), _mm256_permute2f128_ps(x, x, 1));
}

// Halves 1 to 4 * Vectors of every 8 * Vectors elements.
template <size_t Vectors>  // of the 16 registers; 3 hold signs
void in_registers(size_t n, const float* x, float* y) {
  for (size_t first = 0; first < n; first += 8 * Vectors) {
    __m256 v[Vectors];
#pragma GCC unroll 8
    for (size_t i = 0; i < Vectors; ++i) v[i] = within_vector(_mm256_loadu_ps(x + first + 8 * i));
#pragma GCC unroll 3
    for (size_t half = 1; half < Vectors; half *= 2)
#pragma GCC unroll 8
      for (size_t i = 0; i < Vectors; ++i)
        if ((i & half) == 0) {
          const __m256 a = v[i], b = v[i + half];
          v[i] = _mm256_add_ps(a, b);
          v[i + half] = _mm256_sub_ps(a, b);
        }
#pragma GCC unroll 8
    for (size_t i = 0; i < Vectors; ++i) _mm256_storeu_ps(y + first + 8 * i, v[i]);
  }
}

}  // namespace

void hadamard_f32_avx2(size_t n, size_t size, const float* x, float* y) {
  (size == 16 ? in_registers<2> : size == 32 ? in_registers<4> : in_registers<8>)(n, x, y);
  for (size_t half = 64; half < size; half *= 2)
    for (size_t first = 0; first < n; first += 2 * half)
      for (size_t i = first; i < first + half; i += 8) {
        const __m256 a = _mm256_loadu_ps(y + i), b = _mm256_loadu_ps(y + i + half);
        _mm256_storeu_ps(y + i, _mm256_add_ps(a, b));
        _mm256_storeu_ps(y + i + half, _mm256_sub_ps(a, b));
      }
}

}  // namespace intattention
