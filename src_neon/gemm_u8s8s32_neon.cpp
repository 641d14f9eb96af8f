// C (s32) = A (u8) x B^T (s8, r8k4) without dot-product instructions.
//
// AArch64 has no u8 x s8 multiply below FEAT_I8MM, so A is moved to s8 by flipping its top bit:
//   a * b = (a - 128) * b + 128 * b,   (a ^ 0x80 read as s8) = a - 128
//   C[m][n] = sum (a - 128) * b  +  128 * colsum[n],   colsum[n] = sum over k of B[n][k]
// |128 * colsum| <= 2^14 * k, so k up to 65536 stays inside s32. The rest is gemm_s8s8s32_neon (registers are
// drawn there), with the same bound: 4 to 8 cycles per row for 32 MAC, plus one EOR per row and step.
//
// Rows go by blocks of 4 (or 1), outside the tiles of B: chunks of 16 k that are zero in all rows of a block are
// found once per block and left out of every tile. The column sums run over the same chunks,
// beside the multiplications: SADDLP + SADALP per register of B, where 4 rows take 16.
//
// Rejected: widening both sides to s16 and SMLAL (twice the multiplies).
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {
namespace {

constexpr size_t kMaxDepth = 65536;  // kernel_table.h

// The chunks of 16 k of a row block that are not all zero, and where the k behind the last whole chunk begin.
struct Chunks {
  size_t count, tail;
  uint16_t k[kMaxDepth / 16];
};

template <int kRows>
inline void rows_by_tile(const Chunks& chunks, size_t k, const uint8_t* a, size_t lda, const int8_t* b, int32_t* c,
                         size_t ldc) {
  const int8x16_t flip = vreinterpretq_s8_u8(vdupq_n_u8(0x80));
  int32x4_t acc[kRows][4], sum0 = vdupq_n_s32(0), sum1 = vdupq_n_s32(0);
  for (int r = 0; r < kRows; ++r) {
    for (int h = 0; h < 4; ++h) acc[r][h] = vdupq_n_s32(0);
  }
  const auto steps = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; i += 4) {
      const int8x16_t b0 = vld1q_s8(b + i * kTileRows), b1 = vld1q_s8(b + i * kTileRows + 16);
      sum0 = vpadalq_s16(sum0, vpaddlq_s8(b0));
      sum1 = vpadalq_s16(sum1, vpaddlq_s8(b1));
      for (int r = 0; r < kRows; ++r) {
        const int8x16_t ar = veorq_s8(load_dup4(a + r * lda + i), flip);
        acc[r][0] = vpadalq_s16(acc[r][0], vmull_s8(vget_low_s8(b0), vget_low_s8(ar)));
        acc[r][1] = vpadalq_s16(acc[r][1], vmull_high_s8(b0, ar));
        acc[r][2] = vpadalq_s16(acc[r][2], vmull_s8(vget_low_s8(b1), vget_low_s8(ar)));
        acc[r][3] = vpadalq_s16(acc[r][3], vmull_high_s8(b1, ar));
      }
    }
  };
  for (size_t i = 0; i < chunks.count; ++i) steps(chunks.k[i], chunks.k[i] + 16u);
  steps(chunks.tail, k);
  const int32x4_t offset0 = vshlq_n_s32(sum0, 7), offset1 = vshlq_n_s32(sum1, 7);
  for (int r = 0; r < kRows; ++r) {
    vst1q_s32(c + r * ldc, vaddq_s32(offset0, vpaddq_s32(acc[r][0], acc[r][1])));
    vst1q_s32(c + r * ldc + 4, vaddq_s32(offset1, vpaddq_s32(acc[r][2], acc[r][3])));
  }
}

}  // namespace

void gemm_u8s8s32_neon(size_t m, size_t n, size_t k, const uint8_t* a, size_t lda, const int8_t* b_packed,
                       size_t b_stride, int32_t* c, size_t ldc) {
  Chunks chunks;
  chunks.tail = k & ~size_t{15};
  for (size_t i = 0; i < m;) {
    const size_t rows = m - i < 4 ? 1 : 4;
    chunks.count = nonzero_chunks(rows, chunks.tail, a, lda, chunks.k);
    const int8_t* b = b_packed;
    for (size_t j = 0; j < n; j += kTileRows, b += b_stride) {
      if (rows == 4) rows_by_tile<4>(chunks, k, a, lda, b, c + j, ldc);
      if (rows == 1) rows_by_tile<1>(chunks, k, a, lda, b, c + j, ldc);
    }
    i += rows;
    a += rows * lda;
    c += rows * ldc;
  }
}

}  // namespace intattention
