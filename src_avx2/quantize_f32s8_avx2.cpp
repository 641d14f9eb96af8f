// Symmetric quantiser with AVX2, 8 values per step; formula in kernel_table.h and docs/numerics.md section 2.
#include <immintrin.h>

#include <cstring>

#include "kernels.h"

namespace intattention {
namespace {

inline int32_t horizontal_max(__m256i x) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  m = _mm_max_epi32(m, _mm_srli_si128(m, 8));
  return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_srli_si128(m, 4)));
}

inline int32_t horizontal_sum(__m256i x) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  s = _mm_add_epi32(s, _mm_srli_si128(s, 8));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_srli_si128(s, 4)));
}

// s = absmax / 127, or NaN if the group holds NaN or Inf. Bits of positive floats are ordered as the floats are, Inf
// and NaN above them.
inline float group_scale(size_t n, const float* x) {
  constexpr int32_t kLargestFinite = 0x7f7fffff;
  __m256i max = _mm256_setzero_si256();
  for (size_t i = 0; i < n; i += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    max = _mm256_max_epi32(max, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
  }
  const int32_t bits = horizontal_max(max);
  float absmax;
  std::memcpy(&absmax, &bits, sizeof absmax);
  return bits > kLargestFinite ? __builtin_nanf("") : absmax / 127.0f;
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
