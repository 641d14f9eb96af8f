// C (s32) = A (u8) x B^T (s8, r8k4) without dot-product instructions.
//
// AArch64 has no u8 x s8 multiply below FEAT_I8MM, so A is moved to s8 by flipping its top bit:
//   a * b = (a - 128) * b + 128 * b,   (a ^ 0x80 read as s8) = a - 128
//   C[m][n] = sum (a - 128) * b  +  128 * colsum[n],   colsum[n] = sum over k of B[n][k]
// The column sums cost one pass of adds over each tile and serve all m rows. The rest is
// gemm_s8s8s32_neon (registers are drawn there), with the same bound: 4 to 8 cycles per row for 32 MAC, plus
// one EOR per row and step. |128 * colsum| <= 2^14 * k, so k up to 65536 stays inside s32.
//
// Rejected: widening both sides to s16 and SMLAL (twice the multiplies).
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {
namespace {

// 128 * sum over k of each of the 8 columns of a tile.
inline void tile_offsets(size_t k, const int8_t* b, int32x4_t offset[2]) {
  int32x4_t sum0 = vdupq_n_s32(0), sum1 = vdupq_n_s32(0);
  for (size_t i = 0; i < k; i += 4, b += 32) {
    sum0 = vpadalq_s16(sum0, vpaddlq_s8(vld1q_s8(b)));
    sum1 = vpadalq_s16(sum1, vpaddlq_s8(vld1q_s8(b + 16)));
  }
  offset[0] = vshlq_n_s32(sum0, 7);
  offset[1] = vshlq_n_s32(sum1, 7);
}

template <int kRows>
inline void rows_by_tile(size_t k, const uint8_t* a, size_t lda, const int8_t* b, const int32x4_t offset[2], int32_t* c,
                         size_t ldc) {
  const int8x16_t flip = vreinterpretq_s8_u8(vdupq_n_u8(0x80));
  int32x4_t acc[kRows][4];
  for (int r = 0; r < kRows; ++r) {
    for (int h = 0; h < 4; ++h) acc[r][h] = vdupq_n_s32(0);
  }
  for (size_t i = 0; i < k; i += 4, b += 32) {
    const int8x16_t b0 = vld1q_s8(b), b1 = vld1q_s8(b + 16);
    for (int r = 0; r < kRows; ++r) {
      const int8x16_t ar = veorq_s8(load_dup4(a + r * lda + i), flip);
      acc[r][0] = vpadalq_s16(acc[r][0], vmull_s8(vget_low_s8(b0), vget_low_s8(ar)));
      acc[r][1] = vpadalq_s16(acc[r][1], vmull_high_s8(b0, ar));
      acc[r][2] = vpadalq_s16(acc[r][2], vmull_s8(vget_low_s8(b1), vget_low_s8(ar)));
      acc[r][3] = vpadalq_s16(acc[r][3], vmull_high_s8(b1, ar));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    vst1q_s32(c + r * ldc, vaddq_s32(offset[0], vpaddq_s32(acc[r][0], acc[r][1])));
    vst1q_s32(c + r * ldc + 4, vaddq_s32(offset[1], vpaddq_s32(acc[r][2], acc[r][3])));
  }
}

}  // namespace

void gemm_u8s8s32_neon(size_t m, size_t n, size_t k, const uint8_t* a, size_t lda, const int8_t* b_packed,
                       size_t b_stride, int32_t* c, size_t ldc) {
  for (size_t j = 0; j < n; j += kTileRows, b_packed += b_stride) {
    int32x4_t offset[2];
    tile_offsets(k, b_packed, offset);
    size_t i = 0;
    for (; i + 4 <= m; i += 4) rows_by_tile<4>(k, a + i * lda, lda, b_packed, offset, c + i * ldc + j, ldc);
    for (; i < m; ++i) rows_by_tile<1>(k, a + i * lda, lda, b_packed, offset, c + i * ldc + j, ldc);
  }
}

}  // namespace intattention
