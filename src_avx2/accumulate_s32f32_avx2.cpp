// Accumulation of a key block's integer PV sums into the float output with AVX2; no FMA (docs/numerics.md 6).
#include <immintrin.h>

#include "kernels.h"

namespace intattention {

void accumulate_s32f32_avx2(size_t n, float decay, float scale, const int32_t* sum, float* out) {
  const __m256 a = _mm256_set1_ps(decay), s = _mm256_set1_ps(scale);
  for (size_t i = 0; i < n; i += 8) {
    const __m256 add = _mm256_cvtepi32_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(sum + i)));
    _mm256_storeu_ps(out + i, _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(out + i), a), _mm256_mul_ps(add, s)));
  }
}

}  // namespace intattention
