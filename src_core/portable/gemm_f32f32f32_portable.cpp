// Portable f32 GEMM on panels of 16 columns: one row of A against a panel; the inner loop over the 16 columns is
// left to the compiler (SSE2 on x86-64: 4 chains).
#include "portable/kernels.h"

namespace intattention {
namespace {

void row_by_panel(size_t k, const float* a, const float* b, bool add, float* c) {
  float sum[kFloatPanel];
  for (size_t j = 0; j < kFloatPanel; ++j) sum[j] = add ? c[j] : 0.0f;
  for (size_t i = 0; i < k; ++i, b += kFloatPanel)
    for (size_t j = 0; j < kFloatPanel; ++j) sum[j] += a[i] * b[j];
  for (size_t j = 0; j < kFloatPanel; ++j) c[j] = sum[j];
}

}  // namespace

void gemm_f32f32f32_portable(size_t m, size_t n, size_t k, const float* a, size_t lda, const float* b_packed,
                             size_t b_stride, bool add, float* c, size_t ldc) {
  for (size_t j = 0; j < n; j += kFloatPanel, b_packed += b_stride)
    for (size_t i = 0; i < m; ++i) row_by_panel(k, a + i * lda, b_packed, add, c + i * ldc + j);
}

}  // namespace intattention
