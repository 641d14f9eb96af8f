// SwiGLU with AVX2: silu(gate) * up; exp is the sequence of src_core/exp_f32.h.
#include <immintrin.h>

#include "kernels.h"

namespace intattention {
namespace {

inline __m256 multiply_add(__m256 a, __m256 b, float c) {
  return _mm256_add_ps(_mm256_mul_ps(a, b), _mm256_set1_ps(c));
}

inline __m256 exp_f32(__m256 x) {
  const __m256 round = _mm256_set1_ps(12582912.0f);  // 1.5 * 2^23
  x = _mm256_max_ps(x, _mm256_set1_ps(-87.0f));      // NaN becomes -87, as in exp_f32.h
  x = _mm256_min_ps(x, _mm256_set1_ps(88.0f));
  const __m256 n = _mm256_sub_ps(multiply_add(x, _mm256_set1_ps(1.44269504f), 12582912.0f), round);
  __m256 r = _mm256_sub_ps(x, _mm256_mul_ps(n, _mm256_set1_ps(0.693359375f)));
  r = _mm256_sub_ps(r, _mm256_mul_ps(n, _mm256_set1_ps(-2.12194440e-4f)));
  __m256 p = _mm256_set1_ps(1.0f / 720.0f);
  p = multiply_add(p, r, 1.0f / 120.0f);
  p = multiply_add(p, r, 1.0f / 24.0f);
  p = multiply_add(p, r, 1.0f / 6.0f);
  p = multiply_add(p, r, 0.5f);
  p = multiply_add(p, r, 1.0f);
  p = multiply_add(p, r, 1.0f);
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}

}  // namespace

void swiglu_f32_avx2(size_t n, const float* gate, const float* up, float* y) {
  const __m256 sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1.0f);
  for (size_t i = 0; i < n; i += 8) {
    const __m256 g = _mm256_loadu_ps(gate + i);
    const __m256 e = exp_f32(_mm256_xor_ps(g, sign));
    const __m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, e));
    _mm256_storeu_ps(y + i, _mm256_mul_ps(silu, _mm256_loadu_ps(up + i)));
  }
}

}  // namespace intattention
