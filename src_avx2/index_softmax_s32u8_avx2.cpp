// Index softmax of one row of one key block; formula in kernel_table.h and docs/numerics.md section 3.
//
// Pass 1, 16 keys: 2 (min, add, shift), pack, order, two vpmulhrsw, e doublings, log scale, max: 12 + e operations.
//
// Pass 2, 32 keys: 2 (distance, vpmulhrsw), pack, 11 for the table, order, 2 (unpack, join the weight, vpmaddwd, add)
// for the sum: 24 operations.
//
// With e = 1: 50 operations for 32 keys on 3 ports, 0.52 cycles per key.
//
// sat16(u << e) is e saturating doublings (vpaddsw u,u): AVX2 has no saturating shift. e is 0 to 4 in practice, so the
// loop exists once per e up to 3, without a loop inside.
// Only the first and the last 16 visible keys can need a mask; they are taken apart.
//
// Rejected: vpblendvb for the parts of the table (3 operations each); the sum by vpmaddubsw, which saturates.
#include <immintrin.h>

#include "kernels.h"

namespace intattention {
namespace {

constexpr size_t kStep = 16;

inline __m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m128i load_16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline void store_16(uint8_t* p, __m128i x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), x); }

// Visible keys, and the steps of 16 that hold them: [first, inner) and [outer, last) are masked steps, or empty.
struct Span {
  size_t begin, end, first, inner, outer, last;

  explicit Span(const IndexSoftmaxRow& row) : begin(row.begin), end(row.end) {
    first = begin / kStep * kStep;
    last = (end + kStep - 1) / kStep * kStep;
    inner = (begin + kStep - 1) / kStep * kStep;
    outer = end / kStep * kStep;
    if (inner > outer) inner = outer = last;  // both ends in one step
  }

  // All ones in the 16-bit lanes of the visible keys among j .. j+15.
  __m256i mask(size_t j) const {
    const __m256i lane = _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m256i key = _mm256_add_epi16(lane, _mm256_set1_epi16(static_cast<int16_t>(j)));
    const __m256i below_end = _mm256_cmpgt_epi16(_mm256_set1_epi16(static_cast<int16_t>(end)), key);
    const __m256i from_begin = _mm256_cmpgt_epi16(key, _mm256_set1_epi16(static_cast<int16_t>(begin) - 1));
    return _mm256_and_si256(below_end, from_begin);
  }
};

struct Counts {
  __m256i narrow;       // shift count, per lane: a shared one costs vpsrad a second operation
  __m256i half, limit;  // rounding term; largest logit that can be rounded without overflow
  __m256i factor;
  int lshift;

  explicit Counts(const IndexSoftmaxRow& row) : narrow(_mm256_set1_epi32(row.narrow)), lshift(row.lshift) {
    const int32_t rounding = row.narrow > 0 ? 1 << (row.narrow - 1) : 0;
    half = _mm256_set1_epi32(rounding);
    limit = _mm256_set1_epi32(INT32_MAX - rounding);
    factor = _mm256_set1_epi16(row.factor);
  }

  // min() keeps the addition from wrapping; such a logit saturates at 16 bits either way.
  __m256i rounded_shift(const int32_t* p) const {
    return _mm256_srav_epi32(_mm256_add_epi32(_mm256_min_epi32(load(p), limit), half), narrow);
  }

  // y of 16 keys; kShift is lshift if that is known here, else -1
  template <int kShift>
  __m256i step(const int32_t* logits, const int16_t* ratio, const int16_t* log_scale) const {
    const __m256i packed = _mm256_packs_epi32(rounded_shift(logits), rounded_shift(logits + 8));
    const __m256i b = _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0));
    __m256i u = _mm256_mulhrs_epi16(b, load(ratio));
    for (int e = 0; e < (kShift < 0 ? lshift : kShift); ++e) u = _mm256_adds_epi16(u, u);
    return _mm256_adds_epi16(_mm256_mulhrs_epi16(u, factor), load(log_scale));
  }
};

// Pass 1: y of the visible steps to scratch (hidden keys: the lowest value); returns the lanes' maxima.
template <int kShift>
inline __m256i count_keys(const Span& span, const Counts& counts, const int32_t* logits, const IndexSoftmaxKeys& keys,
                          int16_t* scratch) {
  const __m256i lowest = _mm256_set1_epi16(INT16_MIN);
  __m256i max = lowest;
  const auto keep = [&](size_t j, __m256i y) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(scratch + j), y);
    max = _mm256_max_epi16(max, y);
  };
  const auto masked = [&](size_t j) {
    const __m256i y = counts.step<-1>(logits + j, keys.key_ratio + j, keys.log_scale + j);
    keep(j, _mm256_blendv_epi8(lowest, y, span.mask(j)));
  };
  if (span.first < span.inner) masked(span.first);
  for (size_t j = span.inner; j < span.outer; j += kStep)
    keep(j, counts.step<kShift>(logits + j, keys.key_ratio + j, keys.log_scale + j));
  if (span.outer < span.last) masked(span.outer);
  return max;
}

inline int32_t horizontal_max(__m256i x) {
  // vphminposuw finds the smallest of 8 unsigned; x ^ 0x7fff turns the order round
  const __m128i max = _mm_max_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  const __m128i smallest = _mm_minpos_epu16(_mm_xor_si128(max, _mm_set1_epi16(INT16_MAX)));
  return static_cast<int16_t>(_mm_extract_epi16(smallest, 0) ^ INT16_MAX);
}

struct Exponentials {
  __m256i max;
  __m256i table[4];  // 16 entries each; of the last three, what differs from the one before

  explicit Exponentials(int32_t row_max) : max(_mm256_set1_epi16(static_cast<int16_t>(row_max))) {
    const auto quarter = [](size_t i) {
      return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kIndexSoftmaxLut + 16 * i)));
    };
    table[0] = quarter(0);
    for (size_t i = 1; i < 4; ++i) table[i] = _mm256_xor_si256(quarter(i - 1), quarter(i));
  }

  // ((max - y) * 63 + 512) >> 10 by vpmulhrsw with 63 * 32; the subtraction saturates, far beyond the table's end
  __m256i index(__m256i y) const { return _mm256_mulhrs_epi16(_mm256_subs_epi16(max, y), _mm256_set1_epi16(2016)); }

  // LUT of 32 byte indices. vpshufb takes the low 4 bits, and gives 0 where bit 7 is set: i - 16 q is negative in the
  // quarters before q, so table[1] turns an entry of quarter 0 into one of quarter 1 from there on, and so forth.
  __m256i lookup(__m256i i) const {
    i = _mm256_min_epu8(i, _mm256_set1_epi8(63));
    __m256i e = _mm256_shuffle_epi8(table[0], i);
#pragma GCC unroll 3
    for (int q = 1; q < 4; ++q)
      e = _mm256_xor_si256(
          e, _mm256_shuffle_epi8(table[q], _mm256_sub_epi8(i, _mm256_set1_epi8(static_cast<char>(16 * q)))));
    return e;
  }
};

// Pass 2: E' of the visible steps to probs; returns the sum.
inline uint32_t exponentiate(const Span& span, const Exponentials& exps, const int16_t* scratch,
                             const IndexSoftmaxKeys& keys, uint8_t* probs) {
  const __m256i zero = _mm256_setzero_si256();
  __m256i sum = zero;
  const auto step_16 = [&](size_t j, __m256i mask) {
    const __m256i index = exps.index(load(scratch + j));
    const __m256i e16 = _mm256_unpacklo_epi8(exps.lookup(_mm256_packus_epi16(index, index)), zero);
    const __m256i e = _mm256_and_si256(e16, mask);
    const __m256i low = _mm256_cvtepu8_epi16(load_16(keys.weight_low + j));
    const __m256i high = _mm256_cvtepu8_epi16(load_16(keys.weight_high + j));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(e, _mm256_or_si256(low, _mm256_slli_epi16(high, 8))));
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(e, e), _MM_SHUFFLE(3, 1, 2, 0));
    store_16(probs + j, _mm256_castsi256_si128(bytes));
  };
  const auto step_32 = [&](size_t j) {
    const __m256i index = _mm256_packus_epi16(exps.index(load(scratch + j)), exps.index(load(scratch + j + kStep)));
    const __m256i e = _mm256_permute4x64_epi64(exps.lookup(index), _MM_SHUFFLE(3, 1, 2, 0));
    const __m256i low = load(keys.weight_low + j), high = load(keys.weight_high + j);
    const __m256i a = _mm256_madd_epi16(_mm256_unpacklo_epi8(e, zero), _mm256_unpacklo_epi8(low, high));
    const __m256i b = _mm256_madd_epi16(_mm256_unpackhi_epi8(e, zero), _mm256_unpackhi_epi8(low, high));
    sum = _mm256_add_epi32(sum, _mm256_add_epi32(a, b));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(probs + j), e);
  };
  if (span.first < span.inner) step_16(span.first, span.mask(span.first));
  size_t j = span.inner;
  for (; j + 2 * kStep <= span.outer; j += 2 * kStep) step_32(j);
  if (j < span.outer) step_16(j, _mm256_set1_epi8(-1));
  if (span.outer < span.last) step_16(span.outer, span.mask(span.outer));
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  four = _mm_hadd_epi32(four, four);
  return static_cast<uint32_t>(_mm_extract_epi32(four, 0)) + static_cast<uint32_t>(_mm_extract_epi32(four, 1));
}

inline void clear(uint8_t* probs, size_t begin, size_t end) {
  for (size_t j = begin; j < end; j += kStep) store_16(probs + j, _mm_setzero_si128());
}

}  // namespace

void index_softmax_s32u8_avx2(size_t n, const int32_t* logits, const IndexSoftmaxKeys* keys, IndexSoftmaxRow* row,
                              int16_t* scratch, uint8_t* probs) {
  const int32_t running = row->max;
  row->max = kNoMax;
  row->sum = 0;
  if (row->begin >= row->end) return clear(probs, 0, n);
  const Span span(*row);
  const Counts counts(*row);
  __m256i max;
  switch (row->lshift) {
    case 0:
      max = count_keys<0>(span, counts, logits, *keys, scratch);
      break;
    case 1:
      max = count_keys<1>(span, counts, logits, *keys, scratch);
      break;
    case 2:
      max = count_keys<2>(span, counts, logits, *keys, scratch);
      break;
    case 3:
      max = count_keys<3>(span, counts, logits, *keys, scratch);
      break;
    default:
      max = count_keys<-1>(span, counts, logits, *keys, scratch);
      break;
  }
  row->max = horizontal_max(max);
  if (row->max + kDropCounts < running) return clear(probs, 0, n);
  clear(probs, 0, span.first);
  row->sum = exponentiate(span, Exponentials(row->max), scratch, *keys, probs);
  clear(probs, span.last, n);
}

}  // namespace intattention
