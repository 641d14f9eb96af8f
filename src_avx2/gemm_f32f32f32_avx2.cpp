// C (f32) = A (f32) x packed B panels of 16 columns (kernel_table.h), with AVX2 and FMA.
//
// Registers for 6 rows of A and one panel:
//
//                            b0: columns 0-7      b1: columns 8-15
//   a[0] one k, broadcast    sum[0][0]            sum[0][1]
//   ...                      ...                  ...
//   a[5]                     sum[5][0]            sum[5][1]          12 sums + 2 of B + 1 of A = 15 of 16
//
// Bound by the two FMA ports: 12 FMA per k are 6 cycles for 96 MAC; 8 loads per k fit beside them. 12 chains cover
// the latency of 4 cycles (8 would do). The panel (k <= 256: at most 16 KB) stays in L1 while the rows pass.
//
// Rejected: 4x24 (the same 12 chains, but a panel of 24 does not divide d = 64 or 128).
#include <immintrin.h>

#include "kernels.h"

namespace intattention {
namespace {

template <int kRows>
inline void rows_by_panel(size_t k, const float* a, size_t lda, const float* b, bool add, float* c, size_t ldc) {
  __m256 sum[kRows][2];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    sum[r][0] = add ? _mm256_loadu_ps(c + r * ldc) : _mm256_setzero_ps();
    sum[r][1] = add ? _mm256_loadu_ps(c + r * ldc + 8) : _mm256_setzero_ps();
  }
  for (size_t i = 0; i < k; ++i, b += kFloatPanel) {
    const __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256 ar = _mm256_broadcast_ss(a + r * lda + i);
      sum[r][0] = _mm256_fmadd_ps(ar, b0, sum[r][0]);
      sum[r][1] = _mm256_fmadd_ps(ar, b1, sum[r][1]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    _mm256_storeu_ps(c + r * ldc, sum[r][0]);
    _mm256_storeu_ps(c + r * ldc + 8, sum[r][1]);
  }
}

}  // namespace

void gemm_f32f32f32_avx2(size_t m, size_t n, size_t k, const float* a, size_t lda, const float* b_packed,
                         size_t b_stride, bool add, float* c, size_t ldc) {
  for (size_t j = 0; j < n; j += kFloatPanel, b_packed += b_stride) {
    size_t i = 0;
    for (; i + 6 <= m; i += 6) rows_by_panel<6>(k, a + i * lda, lda, b_packed, add, c + i * ldc + j, ldc);
    for (; i + 2 <= m; i += 2) rows_by_panel<2>(k, a + i * lda, lda, b_packed, add, c + i * ldc + j, ldc);
    if (i < m) rows_by_panel<1>(k, a + i * lda, lda, b_packed, add, c + i * ldc + j, ldc);
  }
}

}  // namespace intattention
