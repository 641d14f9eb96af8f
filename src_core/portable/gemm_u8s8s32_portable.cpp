// Portable u8 x s8 -> s32 on r8k4 tiles (packing.h): one row of A against 8 rows of B at a time.
#include "portable/gemm_r8k4.h"
#include "portable/kernels.h"

namespace intattention {

void gemm_u8s8s32_portable(size_t m, size_t n, size_t k, const uint8_t* a, size_t lda, const int8_t* b_packed,
                           size_t b_stride, int32_t* c, size_t ldc) {
  gemm_r8k4(m, n, k, a, lda, b_packed, b_stride, c, ldc);
}

}  // namespace intattention
