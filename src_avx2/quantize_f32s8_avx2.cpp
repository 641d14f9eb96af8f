// Symmetric quantiser with AVX2, 8 values per step; formula in kernel_table.h and docs/numerics.md section 2.
#include <immintrin.h>

#include <cfloat>
#include <cstring>

#include "kernels.h"

namespace intattention {
namespace {

inline float horizontal_max(__m256 x) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

inline int32_t horizontal_sum(__m256i x) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  s = _mm_add_epi32(s, _mm_srli_si128(s, 8));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_srli_si128(s, 4)));
}

// s = absmax / 127, or NaN if the group holds NaN or Inf.
inline float group_scale(size_t n, const float* x) {
  const __m256 magnitude_mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  __m256 max = _mm256_setzero_ps(), bad = _mm256_setzero_ps();
  for (size_t i = 0; i < n; i += 8) {
    const __m256 magnitude = _mm256_and_ps(_mm256_loadu_ps(x + i), magnitude_mask);
    bad = _mm256_or_ps(bad, _mm256_cmp_ps(magnitude, _mm256_set1_ps(FLT_MAX), _CMP_NLE_UQ));
    max = _mm256_max_ps(max, magnitude);
  }
  return _mm256_movemask_ps(bad) != 0 ? __builtin_nanf("") : horizontal_max(max) / 127.0f;
}

// Quantises one group with scale s > 0 and returns the sum of its values.
inline int32_t quantize_group(size_t n, const float* x, float s, int8_t* q) {
  const __m256 divisor = _mm256_set1_ps(s), limit = _mm256_set1_ps(127.0f);
  __m256i sum = _mm256_setzero_si256();
  for (size_t i = 0; i < n; i += 8) {
    __m256 v = _mm256_div_ps(_mm256_loadu_ps(x + i), divisor);
    v = _mm256_max_ps(_mm256_min_ps(v, limit), _mm256_set1_ps(-127.0f));
    const __m256i v32 = _mm256_cvtps_epi32(v);  // half to even, the default rounding mode
    sum = _mm256_add_epi32(sum, v32);
    const __m128i v16 = _mm_packs_epi32(_mm256_castsi256_si128(v32), _mm256_extracti128_si256(v32, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(q + i), _mm_packs_epi16(v16, v16));
  }
  return horizontal_sum(sum);
}

}  // namespace

void quantize_f32s8_avx2(size_t n_groups, size_t group, const float* x, int8_t* q, float* scale, int32_t* sum) {
  for (size_t g = 0; g < n_groups; ++g, x += group, q += group) {
    const float s = group_scale(group, x);
    int32_t group_sum = 0;
    if (s > 0.0f)
      group_sum = quantize_group(group, x, s, q);
    else
      std::memset(q, 0, group);
    scale[g] = s;
    if (sum != nullptr) sum[g] = group_sum;
  }
}

}  // namespace intattention
