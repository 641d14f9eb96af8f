// RMSNorm with AVX2; the 8 lanes of the register are the 8 lanes of docs/numerics.md section 6.
#include <immintrin.h>

#include "kernels.h"

namespace intattention {

void rmsnorm_f32_avx2(size_t n, const float* x, const float* weight, float eps, float* y) {
  __m256 squares = _mm256_setzero_ps();
  for (size_t i = 0; i < n; i += 8) {
    const __m256 v = _mm256_loadu_ps(x + i);
    squares = _mm256_add_ps(squares, _mm256_mul_ps(v, v));
  }
  const __m128 fours = _mm_add_ps(_mm256_castps256_ps128(squares), _mm256_extractf128_ps(squares, 1));
  const __m128 pairs = _mm_add_ps(fours, _mm_movehl_ps(fours, fours));
  const float sum = _mm_cvtss_f32(_mm_add_ss(pairs, _mm_movehdup_ps(pairs)));
  const float root = _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(sum / static_cast<float>(n) + eps)));
  const __m256 inverse = _mm256_set1_ps(1.0f / root);
  for (size_t i = 0; i < n; i += 8)
    _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), inverse), _mm256_loadu_ps(weight + i)));
}

}  // namespace intattention
