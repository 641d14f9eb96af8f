// C (s32) = A (s8) x B^T (s8, r8k8) with SMMLA: one instruction multiplies 2 rows x 8 k by 2 columns x 8 k.
//
// Tile: 4 rows (2 pairs) x 8 columns. A tile of B in r8k8 is 4 registers per 8 k, two columns each:
//
//                               b0 = col 0,1   b1 = col 2,3   b2 = col 4,5   b3 = col 6,7
//   pair 0 | row 0 k0..7 |      acc[0][0]      acc[0][1]      acc[0][2]      acc[0][3]
//          | row 1 k0..7 |
//   pair 1 | row 2, row 3 |     acc[1][0]      acc[1][1]      acc[1][2]      acc[1][3]
//
//   acc[p][v] = | row0.col0  row0.col1  row1.col0  row1.col1 |; ZIP1/ZIP2 of two neighbours (64-bit) give rows.
//   registers: 8 accumulators, 4 of A (two rows zipped: k 0..7 and k 8..15), 1..4 of B.
//
// Bound: 16 SMMLA per 16 k = 512 MAC. Neoverse N2 and A710 issue 2 per cycle (8 cycles, twice SDOT's
// rate); Apple M2 has the MAC rate of SDOT. No Cortex-A76 has it.
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {
namespace {

// 4 columns of two rows, out of two 2x2 accumulators.
inline void store_pair(int32x4_t left, int32x4_t right, int32_t* row0, int32_t* row1, bool both) {
  const int64x2_t l = vreinterpretq_s64_s32(left), r = vreinterpretq_s64_s32(right);
  vst1q_s32(row0, vreinterpretq_s32_s64(vzip1q_s64(l, r)));
  if (both) vst1q_s32(row1, vreinterpretq_s32_s64(vzip2q_s64(l, r)));
}

template <int kPairs>
inline void step8(const int8_t* b, const int8x16_t a[kPairs], int32x4_t acc[kPairs][4]) {
  for (int v = 0; v < 4; ++v) {
    const int8x16_t bv = vld1q_s8(b + 16 * v);
    for (int p = 0; p < kPairs; ++p) acc[p][v] = vmmlaq_s32(acc[p][v], a[p], bv);
  }
}

// `single`: the pair has one row only; it is read twice and stored once.
template <int kPairs>
inline void rows_by_tile(size_t k, const int8_t* a, size_t lda, const int8_t* b, int32_t* c, size_t ldc, bool single) {
  int32x4_t acc[kPairs][4];
  int8x16_t low[kPairs], high[kPairs];
  const size_t next = single ? 0 : lda;
  for (int p = 0; p < kPairs; ++p) {
    for (int v = 0; v < 4; ++v) acc[p][v] = vdupq_n_s32(0);
  }
  size_t i = 0;
  for (; i + 16 <= k; i += 16, b += 128) {
    for (int p = 0; p < kPairs; ++p) {
      const int8_t* row = a + 2 * p * lda + i;
      const int64x2_t r0 = vreinterpretq_s64_s8(vld1q_s8(row)), r1 = vreinterpretq_s64_s8(vld1q_s8(row + next));
      low[p] = vreinterpretq_s8_s64(vzip1q_s64(r0, r1));
      high[p] = vreinterpretq_s8_s64(vzip2q_s64(r0, r1));
    }
    step8<kPairs>(b, low, acc);
    step8<kPairs>(b + 64, high, acc);
  }
  if (i < k) {
    for (int p = 0; p < kPairs; ++p) {
      const int8_t* row = a + 2 * p * lda + i;
      low[p] = vcombine_s8(vld1_s8(row), vld1_s8(row + next));
    }
    step8<kPairs>(b, low, acc);
  }
  for (int p = 0; p < kPairs; ++p) {
    int32_t* row = c + 2 * p * ldc;
    store_pair(acc[p][0], acc[p][1], row, row + ldc, !single);
    store_pair(acc[p][2], acc[p][3], row + 4, row + ldc + 4, !single);
  }
}

}  // namespace

void gemm_s8s8s32_i8mm(size_t m, size_t n, size_t k, const int8_t* a, size_t lda, const int8_t* b_packed,
                       size_t b_stride, int32_t* c, size_t ldc) {
  for (size_t j = 0; j < n; j += kTileRows, b_packed += b_stride) {
    size_t i = 0;
    for (; i + 4 <= m; i += 4) rows_by_tile<2>(k, a + i * lda, lda, b_packed, c + i * ldc + j, ldc, false);
    for (; i < m; i += 2) rows_by_tile<1>(k, a + i * lda, lda, b_packed, c + i * ldc + j, ldc, i + 1 == m);
  }
}

}  // namespace intattention
