// Rotary embedding of one head vector with AVX2, pairs (i, i + n/2).
#include <immintrin.h>

#include "kernels.h"

namespace intattention {

void rope_f32_avx2(size_t n, const float* cos, const float* sin, float* x) {
  float* second = x + n / 2;
  for (size_t i = 0; i < n / 2; i += 8) {
    const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(second + i);
    const __m256 c = _mm256_loadu_ps(cos + i), s = _mm256_loadu_ps(sin + i);
    _mm256_storeu_ps(x + i, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
    _mm256_storeu_ps(second + i, _mm256_add_ps(_mm256_mul_ps(b, c), _mm256_mul_ps(a, s)));
  }
}

}  // namespace intattention
