// C (f32) = A (f32) x packed B panels of 16 columns (kernel_table.h), with AVX-512F.
//
// Registers for 12 rows of A and two panels:
//
//                            b0: panel 0          b1: panel 1
//   a[0] one k, broadcast    sum[0][0]            sum[0][1]
//   ...                      ...                  ...
//   a[11]                    sum[11][0]           sum[11][1]        24 sums + 2 of B + 1 of A = 27 of 32
//
// Bound by the two 512-bit FMA ports (0 and 5): 24 FMA per k are 12 cycles for 384 MAC, beside 14 loads. The two panels
// (k <= 256: 32 KB) stay in L1 while the rows pass; an odd last panel goes alone with 12 sums.
//
// Rejected: 14 x 2 panels (28 sums, no gain once the latency is covered; the tile's 48 rows divide by 12).
#include <immintrin.h>

#include "kernels.h"

namespace intattention {
namespace {

template <int kRows, int kPanels>
inline void rows_by_panels(size_t k, const float* a, size_t lda, const float* b, size_t b_stride, bool add, float* c,
                           size_t ldc) {
  __m512 sum[kRows][kPanels];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) sum[r][p] = add ? _mm512_loadu_ps(c + r * ldc + 16 * p) : _mm512_setzero_ps();
  }
  for (size_t i = 0; i < k; ++i) {
    __m512 bp[kPanels];
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) bp[p] = _mm512_loadu_ps(b + p * b_stride + i * kFloatPanel);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const __m512 ar = _mm512_set1_ps(a[r * lda + i]);
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) sum[r][p] = _mm512_fmadd_ps(ar, bp[p], sum[r][p]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) _mm512_storeu_ps(c + r * ldc + 16 * p, sum[r][p]);
  }
}

template <int kPanels>
inline void all_rows(size_t m, size_t k, const float* a, size_t lda, const float* b, size_t b_stride, bool add,
                     float* c, size_t ldc) {
  size_t i = 0;
  for (; i + 12 <= m; i += 12) rows_by_panels<12, kPanels>(k, a + i * lda, lda, b, b_stride, add, c + i * ldc, ldc);
  for (; i + 4 <= m; i += 4) rows_by_panels<4, kPanels>(k, a + i * lda, lda, b, b_stride, add, c + i * ldc, ldc);
  for (; i < m; ++i) rows_by_panels<1, kPanels>(k, a + i * lda, lda, b, b_stride, add, c + i * ldc, ldc);
}

}  // namespace

void gemm_f32f32f32_avx512(size_t m, size_t n, size_t k, const float* a, size_t lda, const float* b_packed,
                           size_t b_stride, bool add, float* c, size_t ldc) {
  size_t j = 0;
  for (; j + 32 <= n; j += 32, b_packed += 2 * b_stride) all_rows<2>(m, k, a, lda, b_packed, b_stride, add, c + j, ldc);
  if (j < n) all_rows<1>(m, k, a, lda, b_packed, b_stride, add, c + j, ldc);
}

}  // namespace intattention
