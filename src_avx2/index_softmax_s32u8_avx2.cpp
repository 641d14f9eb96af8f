// Index softmax of one row of one key block, 16 keys per step; formula in kernel_table.h and
// docs/numerics.md section 3.
//
// Pass 1: narrow (vpsrad, vpackssdw), two vpmulhrsw, running maximum: about 14 operations per 16 keys.
// Pass 2: distance to the maximum, vpmulhrsw to the index, two vpshufb for the 32-entry table, vpsadbw for the sum,
// vpmullw to fold the value ratio: about 17 operations. On 3 vector ports roughly 10 cycles per 16 keys.
//
// sat16(u << e) is e saturating doublings (vpaddsw u,u): AVX2 has no saturating shift, and e is 0 to 4 in practice.
#include <immintrin.h>

#include "kernels.h"

namespace intattention {
namespace {

struct Constants {
  __m128i narrow;       // shift count
  __m256i half, limit;  // rounding term; largest logit that can be rounded without overflow
  __m256i factor;
  int lshift;
};

inline Constants constants(const IndexSoftmaxRow& row) {
  const int32_t half = row.narrow > 0 ? 1 << (row.narrow - 1) : 0;
  return {_mm_cvtsi32_si128(row.narrow), _mm256_set1_epi32(half), _mm256_set1_epi32(INT32_MAX - half),
          _mm256_set1_epi16(row.factor), row.lshift};
}

// min() keeps the addition from wrapping; such a logit saturates at 16 bits either way.
inline __m256i rounded_shift(const int32_t* p, const Constants& c) {
  const __m256i a = _mm256_min_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), c.limit);
  return _mm256_sra_epi32(_mm256_add_epi32(a, c.half), c.narrow);
}

// 16 logits -> counts
inline __m256i counts(const int32_t* logits, const int16_t* ratio, const Constants& c) {
  const __m256i packed = _mm256_packs_epi32(rounded_shift(logits, c), rounded_shift(logits + 8, c));
  const __m256i b = _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0));
  __m256i u = _mm256_mulhrs_epi16(b, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(ratio)));
  for (int e = 0; e < c.lshift; ++e) u = _mm256_adds_epi16(u, u);
  return _mm256_mulhrs_epi16(u, c.factor);
}

// All ones in the 16-bit lanes of keys j .. j+15 that lie in [begin, end).
inline __m256i visible_lanes(size_t j, size_t begin, size_t end) {
  const __m256i lane = _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m256i key = _mm256_add_epi16(lane, _mm256_set1_epi16(static_cast<int16_t>(j)));
  const __m256i below_end = _mm256_cmpgt_epi16(_mm256_set1_epi16(static_cast<int16_t>(end)), key);
  const __m256i from_begin = _mm256_cmpgt_epi16(key, _mm256_set1_epi16(static_cast<int16_t>(begin) - 1));
  return _mm256_and_si256(below_end, from_begin);
}

inline int32_t horizontal_max(__m256i x) {
  __m128i m = _mm_max_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  m = _mm_max_epi16(m, _mm_srli_si128(m, 8));
  m = _mm_max_epi16(m, _mm_srli_si128(m, 4));
  m = _mm_max_epi16(m, _mm_srli_si128(m, 2));
  return static_cast<int16_t>(_mm_extract_epi16(m, 0));
}

struct Lut {
  __m128i low, high;
};

// LUT[min(max - t, 1024) * 31 / 1024] of 16 keys; the subtraction saturates, as far beyond 1024 as need be.
inline __m128i exponentials(__m256i t, __m256i max, const Lut& lut) {
  const __m256i delta = _mm256_min_epi16(_mm256_subs_epi16(max, t), _mm256_set1_epi16(1024));
  const __m256i index16 = _mm256_mulhrs_epi16(delta, _mm256_set1_epi16(992));  // 31 * 32
  const __m128i index = _mm_packus_epi16(_mm256_castsi256_si128(index16), _mm256_extracti128_si256(index16, 1));
  const __m128i upper = _mm_slli_epi16(index, 3);  // bit 4 of each byte to bit 7; index < 32, nothing spills over
  return _mm_blendv_epi8(_mm_shuffle_epi8(lut.low, index), _mm_shuffle_epi8(lut.high, index), upper);
}

inline __m128i narrow_lanes(__m256i x) {
  return _mm_packs_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}

// (E * ratio + 128) >> 8
inline __m128i fold_value_ratio(__m128i e, const uint16_t* ratio) {
  const __m256i g = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(ratio));
  const __m256i product = _mm256_mullo_epi16(_mm256_cvtepu8_epi16(e), g);
  const __m256i folded = _mm256_srli_epi16(_mm256_add_epi16(product, _mm256_set1_epi16(128)), 8);
  return _mm_packus_epi16(_mm256_castsi256_si128(folded), _mm256_extracti128_si256(folded, 1));
}

}  // namespace

void index_softmax_s32u8_avx2(size_t n, const int32_t* logits, const int16_t* key_ratio, const uint16_t* value_ratio,
                              IndexSoftmaxRow* row, int16_t* scratch, uint8_t* probs) {
  const size_t begin = row->begin, end = row->end;
  const size_t first = begin & ~size_t{15}, last = (end + 15) & ~size_t{15};
  const auto whole = [&](size_t j) { return j >= begin && j + 16 <= end; };
  const Constants c = constants(*row);

  __m256i max_lanes = _mm256_set1_epi16(INT16_MIN);
  if (begin < end)
    for (size_t j = first; j < last; j += 16) {
      __m256i t = counts(logits + j, key_ratio + j, c);
      if (!whole(j)) t = _mm256_blendv_epi8(_mm256_set1_epi16(INT16_MIN), t, visible_lanes(j, begin, end));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(scratch + j), t);
      max_lanes = _mm256_max_epi16(max_lanes, t);
    }
  const int32_t block_max = horizontal_max(max_lanes);
  if (begin < end && block_max > row->max) row->max = block_max;

  const Lut lut{_mm_loadu_si128(reinterpret_cast<const __m128i*>(kIndexSoftmaxLut)),
                _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIndexSoftmaxLut + 16))};
  const __m256i max = _mm256_set1_epi16(static_cast<int16_t>(row->max));
  __m128i sum = _mm_setzero_si128();
  for (size_t j = 0; j < n; j += 16) {
    __m128i* out = reinterpret_cast<__m128i*>(probs + j);
    if (begin >= end || j < first || j >= last) {
      _mm_storeu_si128(out, _mm_setzero_si128());
      continue;
    }
    __m128i e = exponentials(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(scratch + j)), max, lut);
    if (!whole(j)) e = _mm_and_si128(e, narrow_lanes(visible_lanes(j, begin, end)));
    sum = _mm_add_epi64(sum, _mm_sad_epu8(e, _mm_setzero_si128()));
    _mm_storeu_si128(out, fold_value_ratio(e, value_ratio + j));
  }
  row->sum = static_cast<uint32_t>(_mm_cvtsi128_si64(sum) + _mm_extract_epi64(sum, 1));
}

}  // namespace intattention
