// Float softmax of one row of one key block, 16 keys per step; formula in kernel_table.h, docs/numerics.md section 8.
//
// Pass 1: maximum of the s32 logits, 2 operations per 8 keys. Taking it before the dequantisation is exact and saves a
// pass over floats. Pass 2, per 8 keys: difference, conversion, factor, exp (22 operations, the sequence of
// src_core/exp_f32.h), times 127, conversion, 1.5 of packing and sum: about 30 operations on 3 vector ports, 1.3 cycles
// per key. Measured on a Sapphire Rapids: 1.4 (index softmax 0.7, QK and PV at d = 128 about 10). Two registers per
// step, because exp is one chain of about 20 operations of 4 cycles latency.
//
// 2^n is applied by adding n << 23 to the bits of the polynomial: x <= 0 is clamped at -87, where n = -126 comes with a
// polynomial above 1, so the result is normal and equals the multiplication of exp_f32.h. n is taken from the low bits
// of x * log2(e) + 1.5 * 2^23, whose upper bits the shift drops.
//
// Rejected: a polynomial of lower degree. P has 7 bits and degree 3 would do, 6 operations fewer (a fifth of this
// kernel, 2 % of the attention); one exp for the whole library, equal on every ISA, was preferred.
#include <immintrin.h>

#include "kernels.h"

namespace intattention {
namespace {

inline __m256i load8(const int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

// All ones in the lanes of keys j .. j+7 that lie in [begin, end).
inline __m256i visible_lanes(size_t j, size_t begin, size_t end) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i key = _mm256_add_epi32(lane, _mm256_set1_epi32(static_cast<int32_t>(j)));
  const __m256i below_end = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int32_t>(end)), key);
  return _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int32_t>(begin)), key), below_end);
}

inline int32_t horizontal_max(__m256i x) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}

inline __m256 multiply_add(__m256 a, __m256 b, float c) {
  return _mm256_add_ps(_mm256_mul_ps(a, b), _mm256_set1_ps(c));
}

// exp_f32(x) for x <= 0; NaN cannot occur.
inline __m256 exp_of_nonpositive(__m256 x) {
  x = _mm256_max_ps(x, _mm256_set1_ps(-87.0f));
  const __m256 shifted = multiply_add(x, _mm256_set1_ps(1.44269504f), 12582912.0f);
  const __m256 n = _mm256_sub_ps(shifted, _mm256_set1_ps(12582912.0f));
  __m256 r = _mm256_sub_ps(x, _mm256_mul_ps(n, _mm256_set1_ps(0.693359375f)));
  r = _mm256_sub_ps(r, _mm256_mul_ps(n, _mm256_set1_ps(-2.12194440e-4f)));
  __m256 p = _mm256_set1_ps(1.0f / 720.0f);
  p = multiply_add(p, r, 1.0f / 120.0f);
  p = multiply_add(p, r, 1.0f / 24.0f);
  p = multiply_add(p, r, 1.0f / 6.0f);
  p = multiply_add(p, r, 0.5f);
  p = multiply_add(p, r, 1.0f);
  p = multiply_add(p, r, 1.0f);
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
}

inline __m256i probs_of_8(__m256i logits, __m256i max, __m256 factor) {
  const __m256 x = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(logits, max)), factor);
  return _mm256_cvtps_epi32(_mm256_mul_ps(exp_of_nonpositive(x), _mm256_set1_ps(127.0f)));
}

// 16 values 0..127 as bytes, in order.
inline __m128i pack16(__m256i low, __m256i high) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), _MM_SHUFFLE(3, 1, 2, 0));
  return _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

}  // namespace

void softmax_s32s8_avx2(size_t n, const int32_t* logits, FloatSoftmaxRow* row, int8_t* probs) {
  const size_t begin = row->begin, end = row->end;
  const bool empty = begin >= end;
  const size_t first = empty ? 0 : begin & ~size_t{15}, last = empty ? 0 : (end + 15) & ~size_t{15};
  const auto whole = [&](size_t j) { return j >= begin && j + 16 <= end; };

  __m256i maxima = _mm256_set1_epi32(row->max);
  for (size_t j = first; j < last; j += 16) {
    __m256i low = load8(logits + j), high = load8(logits + j + 8);
    if (!whole(j)) {
      low = _mm256_blendv_epi8(maxima, low, visible_lanes(j, begin, end));
      high = _mm256_blendv_epi8(maxima, high, visible_lanes(j + 8, begin, end));
    }
    maxima = _mm256_max_epi32(maxima, _mm256_max_epi32(low, high));
  }
  row->max = horizontal_max(maxima);

  const __m256i max = _mm256_set1_epi32(row->max);
  const __m256 factor = _mm256_set1_ps(row->factor);
  __m128i sum = _mm_setzero_si128();
  for (size_t j = 0; j < n; j += 16) {
    __m128i p = _mm_setzero_si128();
    if (j >= first && j < last) {
      __m256i a0 = load8(logits + j), a1 = load8(logits + j + 8);
      if (!whole(j)) {  // a hidden key may exceed the maximum
        a0 = _mm256_min_epi32(a0, max);
        a1 = _mm256_min_epi32(a1, max);
      }
      __m256i low = probs_of_8(a0, max, factor), high = probs_of_8(a1, max, factor);
      if (!whole(j)) {
        low = _mm256_and_si256(low, visible_lanes(j, begin, end));
        high = _mm256_and_si256(high, visible_lanes(j + 8, begin, end));
      }
      p = pack16(low, high);
      sum = _mm_add_epi64(sum, _mm_sad_epu8(p, _mm_setzero_si128()));
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(probs + j), p);
  }
  row->sum = static_cast<int32_t>(_mm_cvtsi128_si64(sum) + _mm_extract_epi64(sum, 1));
}

}  // namespace intattention
