// Index softmax of one row of one key block with AVX512 (BW, VNNI), 32 keys per step; formula in kernel_table.h and
// docs/numerics.md section 3.
//
// Pass 1, 32 keys: 2 (min, add, shift), pack, order, two vpmulhrsw, e doublings, log scale, max: 12 + e operations.
//
// Pass 2, 32 keys: distance, min, vpmulhrsw, vpermt2w (the table is exactly 64 words), 2 (widen half a weight,
// vpdpwssd) for the sum, vpmovwb (2): 10 operations.
//
// Of 64-byte vectors, port 0 alone does min, max, shifts, vpmulhrsw and saturating adds: 8 + e and 3 of these, so with
// e = 1 12 cycles for 32 keys, 0.38 per key.
//
// Partial steps (hidden keys, n % 32 = 16) use the same code with a lane mask. e: see index_softmax_s32u8_avx2.cpp.
//
// Rejected: vpermb on bytes (needs VBMI, and the bytes would have to be packed and unpacked).
#include <immintrin.h>

#include "kernels.h"

namespace intattention {
namespace {

constexpr size_t kStep = 32;
constexpr __mmask32 kAll = 0xffffffff;

// Keys j .. j+31 that lie in [begin, end).
inline __mmask32 keys_within(size_t j, size_t begin, size_t end) {
  const uint64_t below_end = end - j >= kStep ? kAll : (uint64_t{1} << (end - j)) - 1;
  const uint64_t hidden = begin > j ? (uint64_t{1} << (begin - j)) - 1 : 0;
  return static_cast<__mmask32>(below_end & ~hidden);
}

struct Counts {
  __m512i narrow;       // shift count, per lane: a shared one costs vpsrad a second operation
  __m512i half, limit;  // rounding term; largest logit that can be rounded without overflow
  __m512i factor;
  int lshift;

  explicit Counts(const IndexSoftmaxRow& row) : narrow(_mm512_set1_epi32(row.narrow)), lshift(row.lshift) {
    const int32_t rounding = row.narrow > 0 ? 1 << (row.narrow - 1) : 0;
    half = _mm512_set1_epi32(rounding);
    limit = _mm512_set1_epi32(INT32_MAX - rounding);
    factor = _mm512_set1_epi16(row.factor);
  }

  // min() keeps the addition from wrapping; such a logit saturates at 16 bits either way.
  __m512i rounded_shift(__m512i a) const {
    return _mm512_srav_epi32(_mm512_add_epi32(_mm512_min_epi32(a, limit), half), narrow);
  }

  // y of 32 keys; kShift is lshift if that is known here, else -1
  template <int kShift>
  __m512i step(const int32_t* logits, const int16_t* ratio, const int16_t* log_scale, __mmask32 loaded) const {
    const __m512i first = _mm512_maskz_loadu_epi32(static_cast<__mmask16>(loaded), logits);
    const __m512i second = _mm512_maskz_loadu_epi32(static_cast<__mmask16>(loaded >> 16), logits + 16);
    const __m512i packed = _mm512_packs_epi32(rounded_shift(first), rounded_shift(second));
    const __m512i b = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), packed);
    __m512i u = _mm512_mulhrs_epi16(b, _mm512_maskz_loadu_epi16(loaded, ratio));
    for (int e = 0; e < (kShift < 0 ? lshift : kShift); ++e) u = _mm512_adds_epi16(u, u);
    return _mm512_adds_epi16(_mm512_mulhrs_epi16(u, factor), _mm512_maskz_loadu_epi16(loaded, log_scale));
  }
};

// Calls f(j, mask) for the steps of [begin, end); whole steps with the constant kAll.
template <typename F>
inline void for_steps(size_t begin, size_t end, const F& f) {
  size_t j = begin / kStep * kStep;
  if (j < begin) {
    f(j, keys_within(j, begin, end));
    j += kStep;
  }
  for (; j + kStep <= end; j += kStep) f(j, kAll);
  if (j < end) f(j, keys_within(j, begin, end));
}

// Pass 1: y of the visible keys to scratch; returns the lanes' maxima.
template <int kShift>
inline __m512i count_keys(const IndexSoftmaxRow& row, const int32_t* logits, const IndexSoftmaxKeys& keys,
                          int16_t* scratch) {
  const Counts counts(row);
  __m512i max = _mm512_set1_epi16(INT16_MIN);
  for_steps(row.begin, row.end, [&](size_t j, __mmask32 visible) {
    const __m512i y = counts.step<kShift>(logits + j, keys.key_ratio + j, keys.log_scale + j, visible);
    _mm512_mask_storeu_epi16(scratch + j, visible, y);
    max = _mm512_mask_max_epi16(max, visible, max, y);
  });
  return max;
}

inline int32_t horizontal_max(__m512i x) {
  const __m256i half = _mm256_max_epi16(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
  // vphminposuw finds the smallest of 8 unsigned; x ^ 0x7fff turns the order round
  const __m128i max = _mm_max_epi16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  const __m128i smallest = _mm_minpos_epu16(_mm_xor_si128(max, _mm_set1_epi16(INT16_MAX)));
  return static_cast<int16_t>(_mm_extract_epi16(smallest, 0) ^ INT16_MAX);
}

// Pass 2: E' of the visible keys to probs; returns the sum.
inline uint32_t exponentiate(const IndexSoftmaxRow& row, const int16_t* scratch, const IndexSoftmaxKeys& keys,
                             uint8_t* probs) {
  const auto half_table = [](const uint8_t* p) {
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  };
  const __m512i low = half_table(kIndexSoftmaxLut), high = half_table(kIndexSoftmaxLut + 32);
  const __m512i max = _mm512_set1_epi16(static_cast<int16_t>(row.max));
  const auto words = [](__mmask32 loaded, const uint8_t* p) {
    return _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(loaded, p));
  };
  __m512i sum_low = _mm512_setzero_si512(), sum_high = sum_low;
  for_steps(row.begin, row.end, [&](size_t j, __mmask32 visible) {
    // the subtraction saturates, as far beyond 1024 as need be
    const __m512i y = _mm512_maskz_loadu_epi16(visible, scratch + j);
    const __m512i delta = _mm512_min_epi16(_mm512_subs_epi16(max, y), _mm512_set1_epi16(1024));
    const __m512i index = _mm512_mulhrs_epi16(delta, _mm512_set1_epi16(2016));  // 63 * 32
    const __m512i e = _mm512_maskz_permutex2var_epi16(visible, low, index, high);
    sum_low = _mm512_dpwssd_epi32(sum_low, e, words(visible, keys.weight_low + j));
    sum_high = _mm512_dpwssd_epi32(sum_high, e, words(visible, keys.weight_high + j));
    _mm256_mask_storeu_epi8(probs + j, visible, _mm512_cvtepi16_epi8(e));
  });
  return static_cast<uint32_t>(_mm512_reduce_add_epi32(_mm512_add_epi32(sum_low, _mm512_slli_epi32(sum_high, 8))));
}

inline void clear(uint8_t* probs, size_t begin, size_t end) {
  for_steps(begin, end,
            [&](size_t j, __mmask32 keys) { _mm256_mask_storeu_epi8(probs + j, keys, _mm256_setzero_si256()); });
}

}  // namespace

void index_softmax_s32u8_avx512vnni(size_t n, const int32_t* logits, const IndexSoftmaxKeys* keys, IndexSoftmaxRow* row,
                                    int16_t* scratch, uint8_t* probs) {
  const int32_t running = row->max;
  row->max = kNoMax;
  row->sum = 0;
  if (row->begin >= row->end) return clear(probs, 0, n);
  __m512i max;
  switch (row->lshift) {
    case 0:
      max = count_keys<0>(*row, logits, *keys, scratch);
      break;
    case 1:
      max = count_keys<1>(*row, logits, *keys, scratch);
      break;
    case 2:
      max = count_keys<2>(*row, logits, *keys, scratch);
      break;
    case 3:
      max = count_keys<3>(*row, logits, *keys, scratch);
      break;
    default:
      max = count_keys<-1>(*row, logits, *keys, scratch);
      break;
  }
  row->max = horizontal_max(max);
  if (row->max + kDropCounts < running) return clear(probs, 0, n);
  if (row->begin > 0) clear(probs, 0, row->begin);
  row->sum = exponentiate(*row, scratch, *keys, probs);
  if (row->end < n) clear(probs, row->end, n);
}

}  // namespace intattention
