// C (s32) = A (s8) x B^T (s8, r8k4) without dot-product instructions: widening multiply, then pairwise add.
//
// One step takes 4 k of 8 columns (32 bytes of B) and 4 k of up to 4 rows, each row's 4 bytes broadcast:
//
//                   b0: columns 0..3 x 4 k           b1: columns 4..7 x 4 k
//                  |0 0 0 0 1 1 1 1|2 2 2 2 3 3 3 3| |4 4 4 4 5 5 5 5|6 6 6 6 7 7 7 7|
//   a row r        | k0..3 k0..3   |   ...         |
//   SMULL (8 s16)  | 0 0 0 0 1 1 1 1 |                                    x4 halves
//   SADALP acc     | 0 0 1 1 |  acc[r][0]   | 2 2 3 3 |  acc[r][1]  ...    acc[r][2], acc[r][3]
//   at the end     ADDP(acc[r][0], acc[r][1]) = | 0 1 2 3 |
//
//   registers: 16 accumulators, 2 of B, 1 of A, 4 products.
//
// Bound on Cortex-A76: SMULL and SADALP issue 1 per cycle each, at best on different pipes: 4 to 8 cycles per
// row and step of 32 MAC (SDOT: 1 cycle). This is the tier of Cortex-A72 and older.
//
// Rejected: SMULL + SMLAL before one SADALP (half the adds). Two products reach 2 * 128 * 128 = 2^15, one
// more than s16 holds, and the contract allows every s8 value.
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {
namespace {

template <int kRows>
inline void rows_by_tile(size_t k, const int8_t* a, size_t lda, const int8_t* b, int32_t* c, size_t ldc) {
  int32x4_t acc[kRows][4];
  for (int r = 0; r < kRows; ++r) {
    for (int h = 0; h < 4; ++h) acc[r][h] = vdupq_n_s32(0);
  }
  for (size_t i = 0; i < k; i += 4, b += 32) {
    const int8x16_t b0 = vld1q_s8(b), b1 = vld1q_s8(b + 16);
    for (int r = 0; r < kRows; ++r) {
      const int8x16_t ar = load_dup4(a + r * lda + i);
      acc[r][0] = vpadalq_s16(acc[r][0], vmull_s8(vget_low_s8(b0), vget_low_s8(ar)));
      acc[r][1] = vpadalq_s16(acc[r][1], vmull_high_s8(b0, ar));
      acc[r][2] = vpadalq_s16(acc[r][2], vmull_s8(vget_low_s8(b1), vget_low_s8(ar)));
      acc[r][3] = vpadalq_s16(acc[r][3], vmull_high_s8(b1, ar));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    vst1q_s32(c + r * ldc, vpaddq_s32(acc[r][0], acc[r][1]));
    vst1q_s32(c + r * ldc + 4, vpaddq_s32(acc[r][2], acc[r][3]));
  }
}

}  // namespace

void gemm_s8s8s32_neon(size_t m, size_t n, size_t k, const int8_t* a, size_t lda, const int8_t* b_packed,
                       size_t b_stride, int32_t* c, size_t ldc) {
  for (size_t j = 0; j < n; j += kTileRows, b_packed += b_stride) {
    size_t i = 0;
    for (; i + 4 <= m; i += 4) rows_by_tile<4>(k, a + i * lda, lda, b_packed, c + i * ldc + j, ldc);
    for (; i < m; ++i) rows_by_tile<1>(k, a + i * lda, lda, b_packed, c + i * ldc + j, ldc);
  }
}

}  // namespace intattention
