// C (s32) = A (u8) x B^T (s8, r8k4) with SDOT by element; USDOT needs FEAT_I8MM, which A76 and A78AE lack.
//
// A is moved to s8 by flipping its top bit (a ^ 0x80 = a - 128), and 128 * colsum(B) is added back:
//   C[m][n] = sum over k of (a - 128) * b  +  128 * sum over k of b
// exact for every u8 and s8. The column sums are one SDOT with ones per register of B, once per tile for
// all m rows; they are the accumulators' start value. The tile is that of gemm_s8s8s32_dotprod:
//
//                        b0 = columns 0..3   b1 = columns 4..7
//   a0 ^ 0x80            acc[0][0]           acc[0][1]           start: offset[0], offset[1]
//    ...                  ...                 ...
//   a3 ^ 0x80            acc[3][0]           acc[3][1]
//
// Bound on Cortex-A76: per 16 k 32 SDOT + 4 EOR at 0.5 cycle = 18 cycles for 512 MAC; the offsets add
// 8 SDOT per 16 k and tile, 1/(m*4) of the multiplications.
//
// Rejected: UDOT on B ^ 0x80 minus 128 * rowsum(A). The row sums are cheaper, but B's EOR comes back for
// every block of 4 rows: 8 per 32 dots instead of 4.
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {
namespace {

template <int kLane, int kRows>
inline void step4(const int8_t* b, const int8x16_t a[kRows], int32x4_t acc[kRows][2]) {
  const int8x16_t b0 = vld1q_s8(b), b1 = vld1q_s8(b + 16);
  for (int r = 0; r < kRows; ++r) {
    acc[r][0] = vdotq_laneq_s32(acc[r][0], b0, a[r], kLane);
    acc[r][1] = vdotq_laneq_s32(acc[r][1], b1, a[r], kLane);
  }
}

// 128 * sum over k of each of the 8 columns of a tile.
inline void tile_offsets(size_t k, const int8_t* b, int32x4_t offset[2]) {
  const int8x16_t ones = vdupq_n_s8(1);
  int32x4_t sum0 = vdupq_n_s32(0), sum1 = vdupq_n_s32(0);
  for (size_t i = 0; i < k; i += 4, b += 32) {
    sum0 = vdotq_s32(sum0, vld1q_s8(b), ones);
    sum1 = vdotq_s32(sum1, vld1q_s8(b + 16), ones);
  }
  offset[0] = vshlq_n_s32(sum0, 7);
  offset[1] = vshlq_n_s32(sum1, 7);
}

template <int kRows>
inline void rows_by_tile(size_t k, const uint8_t* a, size_t lda, const int8_t* b, const int32x4_t offset[2], int32_t* c,
                         size_t ldc) {
  const int8x16_t flip = vreinterpretq_s8_u8(vdupq_n_u8(0x80));
  int32x4_t acc[kRows][2];
  int8x16_t ar[kRows];
  for (int r = 0; r < kRows; ++r) {
    acc[r][0] = offset[0];
    acc[r][1] = offset[1];
  }
  size_t i = 0;
  for (; i + 16 <= k; i += 16, b += 128) {
    for (int r = 0; r < kRows; ++r) ar[r] = veorq_s8(vreinterpretq_s8_u8(vld1q_u8(a + r * lda + i)), flip);
    step4<0, kRows>(b, ar, acc);
    step4<1, kRows>(b + 32, ar, acc);
    step4<2, kRows>(b + 64, ar, acc);
    step4<3, kRows>(b + 96, ar, acc);
  }
  for (; i < k; i += 4, b += 32) {
    for (int r = 0; r < kRows; ++r) ar[r] = veorq_s8(load_dup4(a + r * lda + i), flip);
    step4<0, kRows>(b, ar, acc);
  }
  for (int r = 0; r < kRows; ++r) {
    vst1q_s32(c + r * ldc, acc[r][0]);
    vst1q_s32(c + r * ldc + 4, acc[r][1]);
  }
}

}  // namespace

void gemm_u8s8s32_dotprod(size_t m, size_t n, size_t k, const uint8_t* a, size_t lda, const int8_t* b_packed,
                          size_t b_stride, int32_t* c, size_t ldc) {
  for (size_t j = 0; j < n; j += kTileRows, b_packed += b_stride) {
    int32x4_t offset[2];
    tile_offsets(k, b_packed, offset);
    size_t i = 0;
    for (; i + 4 <= m; i += 4) rows_by_tile<4>(k, a + i * lda, lda, b_packed, offset, c + i * ldc + j, ldc);
    const size_t left = m - i;
    if (left == 3) rows_by_tile<3>(k, a + i * lda, lda, b_packed, offset, c + i * ldc + j, ldc);
    if (left == 2) rows_by_tile<2>(k, a + i * lda, lda, b_packed, offset, c + i * ldc + j, ldc);
    if (left == 1) rows_by_tile<1>(k, a + i * lda, lda, b_packed, offset, c + i * ldc + j, ldc);
  }
}

}  // namespace intattention
