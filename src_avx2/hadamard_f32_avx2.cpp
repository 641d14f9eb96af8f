// Walsh-Hadamard transform with AVX2; the formula is in kernel_table.h.
//
// Halves 1, 2 and 4 lie within a vector of 8: the partners are swapped, and the element that subtracts itself from its
// partner is negated: a + b = swapped + x, a - b = swapped + (-x). Each element is one rounded sum, as everywhere.
#include <immintrin.h>

#include "kernels.h"

namespace intattention {
namespace {

// swapped + (x with the sign of the lanes in `negative` turned)
inline __m256 butterfly(__m256 x, __m256 swapped, __m256 negative) {
  return _mm256_add_ps(swapped, _mm256_xor_ps(x, negative));
}

inline __m256 within_vector(__m256 x) {
  const float m = -0.0f;
  x = butterfly(x, _mm256_permute_ps(x, 0xb1), _mm256_setr_ps(0, m, 0, m, 0, m, 0, m));
  x = butterfly(x, _mm256_permute_ps(x, 0x4e), _mm256_setr_ps(0, 0, m, m, 0, 0, m, m));
  return butterfly(x, _mm256_permute2f128_ps(x, x, 1), _mm256_setr_ps(0, 0, 0, 0, m, m, m, m));
}

}  // namespace

void hadamard_f32_avx2(size_t n, size_t size, const float* x, float* y) {
  for (size_t i = 0; i < n; i += 8) _mm256_storeu_ps(y + i, within_vector(_mm256_loadu_ps(x + i)));
  for (size_t half = 8; half < size; half *= 2)
    for (size_t first = 0; first < n; first += 2 * half)
      for (size_t i = first; i < first + half; i += 8) {
        const __m256 a = _mm256_loadu_ps(y + i), b = _mm256_loadu_ps(y + i + half);
        _mm256_storeu_ps(y + i, _mm256_add_ps(a, b));
        _mm256_storeu_ps(y + i + half, _mm256_sub_ps(a, b));
      }
}

}  // namespace intattention
