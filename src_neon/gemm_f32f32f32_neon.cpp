// C (f32) = A (f32) x packed B panels of 16 columns (kernel_table.h), FMLA by element.
//
// Registers for 4 rows of A (4 k each) and one panel:
//
//                       b[0]: columns 0-3   b[1]: 4-7   b[2]: 8-11   b[3]: 12-15
//   a[0] 4 k            sum[0][0]           sum[0][1]   sum[0][2]    sum[0][3]
//   ...                 ...                                          ...
//   a[3]                sum[3][0]           ...                      sum[3][3]      16 sums + 4 of B + 4 of A = 24 of
//   32
//
// Bound by FMLA: per k 16 of them on 2 pipes (Cortex-A76: 8 cycles for 64 MAC), beside 4 loads of B and 1 of A on the
// 2 load ports. 16 chains cover the latency of 4 cycles x 2 pipes.
//
// Rejected: 8x8 (3 loads per 16 FMLA instead of 5, neither binds) needs panels of 8, twice the passes over A;
// 6x16 has no registers for A by element.
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {
namespace {

template <int kRows, int kLane>
inline void multiply_k(const float32x4_t (&a)[kRows], const float* b, float32x4_t (&sum)[kRows][4]) {
#pragma GCC unroll 4
  for (int h = 0; h < 4; ++h) {
    const float32x4_t bh = vld1q_f32(b + 4 * h);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sum[r][h] = vfmaq_laneq_f32(sum[r][h], bh, a[r], kLane);
  }
}

template <int kRows>
inline void rows_by_panel(size_t k, const float* a, size_t lda, const float* b, bool add, float* c, size_t ldc) {
  float32x4_t sum[kRows][4];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int h = 0; h < 4; ++h) sum[r][h] = add ? vld1q_f32(c + r * ldc + 4 * h) : vdupq_n_f32(0.0f);
  for (size_t i = 0; i < k; i += 4, b += 4 * kFloatPanel) {
    float32x4_t rows[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) rows[r] = vld1q_f32(a + r * lda + i);
    multiply_k<kRows, 0>(rows, b, sum);
    multiply_k<kRows, 1>(rows, b + kFloatPanel, sum);
    multiply_k<kRows, 2>(rows, b + 2 * kFloatPanel, sum);
    multiply_k<kRows, 3>(rows, b + 3 * kFloatPanel, sum);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int h = 0; h < 4; ++h) vst1q_f32(c + r * ldc + 4 * h, sum[r][h]);
}

}  // namespace

void gemm_f32f32f32_neon(size_t m, size_t n, size_t k, const float* a, size_t lda, const float* b_packed,
                         size_t b_stride, bool add, float* c, size_t ldc) {
  for (size_t j = 0; j < n; j += kFloatPanel, b_packed += b_stride) {
    size_t i = 0;
    for (; i + 4 <= m; i += 4) rows_by_panel<4>(k, a + i * lda, lda, b_packed, add, c + i * ldc + j, ldc);
    for (; i < m; ++i) rows_by_panel<1>(k, a + i * lda, lda, b_packed, add, c + i * ldc + j, ldc);
  }
}

}  // namespace intattention
