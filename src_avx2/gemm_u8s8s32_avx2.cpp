// u8 x s8 -> s32 with AVX2, exact for every input; register map and cost in gemm_x8s8s32_avx2.h.
#include "gemm_x8s8s32_avx2.h"
#include "kernels.h"

namespace intattention {

void gemm_u8s8s32_avx2(size_t m, size_t n, size_t k, const uint8_t* a, size_t lda, const int8_t* b_packed,
                       size_t b_stride, int32_t* c, size_t ldc) {
  gemm_x8s8s32(m, n, k, a, lda, b_packed, b_stride, c, ldc);
}

}  // namespace intattention
