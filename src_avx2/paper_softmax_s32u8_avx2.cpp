// IndexSoftmax as published, one whole row, 16 keys per step; formula in kernel_table.h, docs/numerics.md section 7.
//
// Pass 1: maximum. Pass 2: index by one multiplication (src_core/paper_index.h), per 8 keys
//
//   delta = min(max - A, c) << lshift      vpsubd vpminsd vpslld     | d0 d1 d2 d3 d4 d5 d6 d7 |
//   even, odd = delta * multiplier         vpsrlq, 2 vpmuludq        | d0*m  | d2*m  | ...  and | d1*m  | d3*m  | ...
//   upper halves side by side              vpsrlq, vpblendd
//   idx = (upper + half) >> shift          vpaddd vpsrld
//
// 10 operations, plus packing, look-up and sum: about 30 operations per 16 keys on 3 ports, 10 cycles. Pass 3: P has
// only 32 values in a row, so the division by the row sum is 32 divisions per row, and the rest a second look-up: 4
// operations per 16 keys. Measured on a Sapphire Rapids: 0.8 cycles per key for all three passes.
//
// The table of P is exact in float32: 255 E and, where P is not 0 anyway, the sum are below 2^24, and a quotient that
// is not a tie is at least 1 / (2 sum) away from one: with sum <= 255 * 255 / quotient that is 100 times the rounding
// error.
//
// Rejected: dividing each 255 * E by the sum, as the publication does (2 vdivps per 16 keys).
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

inline int32_t row_max(const int32_t* logits, size_t begin, size_t end) {
  const __m256i lowest = _mm256_set1_epi32(INT32_MIN);
  __m256i max0 = lowest, max1 = lowest;
  for (size_t j = begin & ~size_t{15}; j < end; j += 16) {
    __m256i low = load8(logits + j), high = load8(logits + j + 8);
    if (j < begin || j + 16 > end) {
      low = _mm256_blendv_epi8(lowest, low, visible_lanes(j, begin, end));
      high = _mm256_blendv_epi8(lowest, high, visible_lanes(j + 8, begin, end));
    }
    max0 = _mm256_max_epi32(max0, low);
    max1 = _mm256_max_epi32(max1, high);
  }
  max0 = _mm256_max_epi32(max0, max1);
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(max0), _mm256_extracti128_si256(max0, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}

struct Constants {
  __m256i max, limit, multiplier, half;
  __m128i lshift, shift;
};

inline __m256i index_of_8(const int32_t* logits, const Constants& c) {
  const __m256i delta = _mm256_min_epi32(_mm256_sub_epi32(c.max, load8(logits)), c.limit);
  const __m256i left = _mm256_sll_epi32(delta, c.lshift);
  const __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(left, c.multiplier), 32);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(left, 32), c.multiplier);
  return _mm256_srl_epi32(_mm256_add_epi32(_mm256_blend_epi32(even, odd, 0xaa), c.half), c.shift);
}

// 16 values 0..255 as bytes, in order.
inline __m128i pack16(__m256i low, __m256i high) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), _MM_SHUFFLE(3, 1, 2, 0));
  return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

struct Table {
  __m128i low, high;
};

inline Table load_table(const uint8_t* p) {
  return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)),
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16))};
}

// 16 entries of a table of 32 bytes.
inline __m128i look_up(const Table& table, __m128i index) {
  const __m128i upper = _mm_slli_epi16(index, 3);  // bit 4 of each byte to bit 7; nothing below 32 spills over
  return _mm_blendv_epi8(_mm_shuffle_epi8(table.low, index), _mm_shuffle_epi8(table.high, index), upper);
}

// rne(255 * LUT[i] / sum)
inline Table probability_table(uint32_t sum) {
  const __m256 divisor = _mm256_set1_ps(static_cast<float>(sum));
  __m256i p[4];
  for (int i = 0; i < 4; ++i) {
    const __m128i e = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kPaperLut + 8 * i));
    const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(e)), _mm256_set1_ps(255.0f));
    p[i] = _mm256_cvtps_epi32(_mm256_div_ps(scaled, divisor));
  }
  return {pack16(p[0], p[1]), pack16(p[2], p[3])};
}

}  // namespace

uint32_t paper_softmax_s32u8_avx2(size_t n, const int32_t* logits, size_t begin, size_t end, const PaperIndex* index,
                                  uint8_t* probs) {
  const bool empty = begin >= end;
  const size_t first = empty ? 0 : begin & ~size_t{15}, last = empty ? 0 : (end + 15) & ~size_t{15};
  const __m128i zero = _mm_setzero_si128();
  const auto at = [&](size_t j) { return reinterpret_cast<__m128i*>(probs + j); };
  for (size_t j = 0; j < first; j += 16) _mm_storeu_si128(at(j), zero);
  for (size_t j = last; j < n; j += 16) _mm_storeu_si128(at(j), zero);
  if (empty) return 0;

  const Constants c{_mm256_set1_epi32(row_max(logits, begin, end)),
                    _mm256_set1_epi32(index->limit),
                    _mm256_set1_epi32(static_cast<int32_t>(index->multiplier)),
                    _mm256_set1_epi32(static_cast<int32_t>(index->half)),
                    _mm_cvtsi32_si128(index->lshift),
                    _mm_cvtsi32_si128(index->shift)};
  const Table lut = load_table(kPaperLut);
  __m128i sum = zero;
  for (size_t j = first; j < last; j += 16) {
    __m128i i = pack16(index_of_8(logits + j, c), index_of_8(logits + j + 8, c));
    // A hidden key takes index 31, where E and P are 0; its own delta may be anything.
    if (j < begin || j + 16 > end) {
      const __m128i visible = pack16(_mm256_srli_epi32(visible_lanes(j, begin, end), 24),
                                     _mm256_srli_epi32(visible_lanes(j + 8, begin, end), 24));
      i = _mm_blendv_epi8(_mm_set1_epi8(31), i, visible);
    }
    _mm_storeu_si128(at(j), i);
    sum = _mm_add_epi64(sum, _mm_sad_epu8(look_up(lut, i), zero));
  }
  const uint32_t total = static_cast<uint32_t>(_mm_cvtsi128_si64(sum) + _mm_extract_epi64(sum, 1));
  const Table table = probability_table(total);
  for (size_t j = first; j < last; j += 16) _mm_storeu_si128(at(j), look_up(table, _mm_loadu_si128(at(j))));
  return total;
}

}  // namespace intattention
