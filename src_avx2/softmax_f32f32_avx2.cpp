// One row of one key block of the float softmax; formula in kernel_table.h.
//
// Pass 1: running maximum, load-bound. Pass 2, per 8 logits: t = (x - max) * scale * log2(e), split as n + r by
// adding 1.5 * 2^23 + 127 (the sum's low bits are the exponent of 2^n), a degree-5 polynomial for 2^r (relative error
// 9.2e-8), one multiply. 15 vector operations of which 13 need the FMA ports: about 7 cycles per 8 logits, against
// d cycles of their GEMMs (d = 64: 64). Steps are independent but for the sum, so the window overlaps them.
//
// Rejected: fma(x, scale, -max * scale), one operation less, rounds max * scale to the ulp of a large logit and the
// rescaling between blocks then no longer agrees with it; degree 6 (2e-9, below the rounding of the rest).
#include <immintrin.h>

#include "kernels.h"

namespace intattention {
namespace {

constexpr float kLog2e = 1.44269504f;

// 2^t for t <= 0; below 2^-126 the result is 2^-126. A NaN stays one (vmaxps returns its second operand).
inline __m256 exp2_nonpositive(__m256 t) {
  const __m256 shift = _mm256_set1_ps(12582912.0f + 127.0f);
  t = _mm256_max_ps(_mm256_set1_ps(-126.0f), t);
  const __m256 z = _mm256_add_ps(t, shift);
  const __m256 r = _mm256_sub_ps(t, _mm256_sub_ps(z, shift));
  __m256 p = _mm256_set1_ps(1.326472205e-3f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(9.671512997e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.550733760e-2f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(2.402224208e-1f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(6.931469776e-1f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(z), 23)));
}

// All ones in the lanes of keys j .. j+7 that lie in [begin, end).
inline __m256 visible_lanes(size_t j, size_t begin, size_t end) {
  const __m256i key =
      _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(static_cast<int>(j)));
  const __m256i below_end = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(end)), key);
  const __m256i before = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(begin)), key);
  return _mm256_castsi256_ps(_mm256_andnot_si256(before, below_end));
}

inline __m128 halves(__m256 x, __m128 (*combine)(__m128, __m128)) {
  __m128 y = combine(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = combine(y, _mm_movehl_ps(y, y));
  return combine(y, _mm_shuffle_ps(y, y, 1));
}
inline __m128 larger(__m128 a, __m128 b) { return _mm_max_ps(a, b); }
inline __m128 added(__m128 a, __m128 b) { return _mm_add_ps(a, b); }

// Calls step(j, whole) for j = first, first + 8, ... last - 8; whole: all 8 keys are visible.
template <typename Step>
inline void visible_steps(size_t begin, size_t end, Step step) {
  const size_t first = begin & ~size_t{7}, last = (end + 7) & ~size_t{7};
  size_t j = first;
  if (j < begin && j < last) step(j, false), j += 8;
  for (; j + 8 <= end; j += 8) step(j, true);
  if (j < last) step(j, false);
}

// The larger of `max` and the visible logits. Four chains: vmaxps has a latency of 4.
inline float visible_max(const float* logits, size_t begin, size_t end, float max) {
  const __m256 none = _mm256_set1_ps(kNoLogit);
  __m256 a = _mm256_set1_ps(max), b = a, c = a, d = a;
  const size_t inner = (begin + 7) & ~size_t{7}, blocks = end > inner ? (end - inner) / 32 : 0;
  for (size_t j = inner; j < inner + 32 * blocks; j += 32) {
    a = _mm256_max_ps(a, _mm256_loadu_ps(logits + j));
    b = _mm256_max_ps(b, _mm256_loadu_ps(logits + j + 8));
    c = _mm256_max_ps(c, _mm256_loadu_ps(logits + j + 16));
    d = _mm256_max_ps(d, _mm256_loadu_ps(logits + j + 24));
  }
  const auto edge = [&](size_t first, size_t last) {
    for (size_t j = first; j < last; j += 8)
      a = _mm256_max_ps(a, _mm256_blendv_ps(none, _mm256_loadu_ps(logits + j), visible_lanes(j, begin, end)));
  };
  edge(begin & ~size_t{7}, inner < end ? inner : end);
  edge(inner + 32 * blocks, end);
  return _mm_cvtss_f32(halves(_mm256_max_ps(_mm256_max_ps(a, b), _mm256_max_ps(c, d)), larger));
}

}  // namespace

void softmax_f32f32_avx2(size_t n, const float* logits, SoftmaxRow* row, float* probs) {
  const size_t begin = row->begin, end = row->begin < row->end ? row->end : row->begin;
  if (begin < end) row->max = visible_max(logits, begin, end, row->max);
  const size_t first = begin & ~size_t{7}, last = begin < end ? (end + 7) & ~size_t{7} : first;
  for (size_t j = 0; j < first; j += 8) _mm256_storeu_ps(probs + j, _mm256_setzero_ps());
  const __m256 max = _mm256_set1_ps(row->max), factor = _mm256_set1_ps(row->scale * kLog2e);
  __m256 sum = _mm256_setzero_ps();
  visible_steps(begin, end, [&](size_t j, bool whole) {
    const __m256 t = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(logits + j), max), factor);
    __m256 p = exp2_nonpositive(t);
    if (!whole) p = _mm256_and_ps(p, visible_lanes(j, begin, end));
    sum = _mm256_add_ps(sum, p);
    _mm256_storeu_ps(probs + j, p);
  });
  for (size_t j = last; j < n; j += 8) _mm256_storeu_ps(probs + j, _mm256_setzero_ps());
  row->sum = _mm_cvtss_f32(halves(sum, added));
}

}  // namespace intattention
