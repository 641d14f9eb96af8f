// One row of one key block of the float softmax, 16 logits per step; formula in kernel_table.h.
//
// The same arithmetic as softmax_f32f32_avx2 (drawn and argued there) with a mask register for the keys at the ends.
// About 13 operations per 16 logits on the two 512-bit ports: 7 cycles, against 4 * d of their GEMMs per 16 logits at
// 32 MAC per cycle and d MAC for each of QK and PV, that is 64 cycles at d = 64.
//
// Rejected: vscalefps for the 2^n (removes the clamp, but is 2 operations on one port); vrndscaleps (2 operations).
#include <immintrin.h>

#include "kernels.h"

namespace intattention {
namespace {

constexpr float kLog2e = 1.44269504f;

// 2^t for t <= 0; below 2^-126 the result is 2^-126. A NaN stays one (vmaxps returns its second operand).
inline __m512 exp2_nonpositive(__m512 t) {
  const __m512 shift = _mm512_set1_ps(12582912.0f + 127.0f);
  t = _mm512_max_ps(_mm512_set1_ps(-126.0f), t);
  const __m512 z = _mm512_add_ps(t, shift);
  const __m512 r = _mm512_sub_ps(t, _mm512_sub_ps(z, shift));
  __m512 p = _mm512_set1_ps(1.326472205e-3f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.671512997e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.550733760e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.402224208e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.931469776e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_mul_ps(p, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(z), 23)));
}

// One bit for each of the keys j .. j+15 that lies in [begin, end).
inline __mmask16 visible_lanes(size_t j, size_t begin, size_t end) {
  const uint32_t from = begin > j ? (begin - j < 16 ? 0xffffu << (begin - j) : 0u) : 0xffffu;
  const uint32_t below = end > j ? (end - j < 16 ? (1u << (end - j)) - 1 : 0xffffu) : 0u;
  return static_cast<__mmask16>(from & below);
}

// The larger of `max` and the visible logits. Four chains: vmaxps has a latency of 4.
inline float visible_max(const float* logits, size_t begin, size_t end, float max) {
  __m512 a = _mm512_set1_ps(max), b = a, c = a, d = a;
  const size_t inner = (begin + 15) & ~size_t{15}, blocks = end > inner ? (end - inner) / 64 : 0;
  for (size_t j = inner; j < inner + 64 * blocks; j += 64) {
    a = _mm512_max_ps(a, _mm512_loadu_ps(logits + j));
    b = _mm512_max_ps(b, _mm512_loadu_ps(logits + j + 16));
    c = _mm512_max_ps(c, _mm512_loadu_ps(logits + j + 32));
    d = _mm512_max_ps(d, _mm512_loadu_ps(logits + j + 48));
  }
  const auto edge = [&](size_t first, size_t last) {
    for (size_t j = first; j < last; j += 16)
      a = _mm512_mask_max_ps(a, visible_lanes(j, begin, end), a, _mm512_loadu_ps(logits + j));
  };
  edge(begin & ~size_t{15}, inner < end ? inner : end);
  edge(inner + 64 * blocks, end);
  return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d)));
}

}  // namespace

void softmax_f32f32_avx512(size_t n, const float* logits, SoftmaxRow* row, float* probs) {
  const size_t begin = row->begin, end = row->end;
  if (begin < end) row->max = visible_max(logits, begin, end, row->max);
  const __m512 max = _mm512_set1_ps(row->max), factor = _mm512_set1_ps(row->scale * kLog2e);
  __m512 sum = _mm512_setzero_ps();
  for (size_t j = 0; j < n; j += 16) {
    const bool whole = j >= begin && j + 16 <= end;
    const __mmask16 visible = whole ? static_cast<__mmask16>(0xffff) : visible_lanes(j, begin, end);
    __m512 p = _mm512_setzero_ps();
    if (visible != 0) {
      const __m512 t = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(logits + j), max), factor);
      p = _mm512_maskz_mov_ps(visible, exp2_nonpositive(t));
    }
    sum = _mm512_add_ps(sum, p);
    _mm512_storeu_ps(probs + j, p);
  }
  row->sum = _mm512_reduce_add_ps(sum);
}

}  // namespace intattention
