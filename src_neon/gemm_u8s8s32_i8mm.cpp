// C (s32) = A (u8) x B^T (s8, r8k8) with USMMLA: 2 rows x 8 k unsigned by 2 columns x 8 k signed, exact,
// so neither the flipped top bit nor the column sums of gemm_u8s8s32_dotprod are needed.
//
// Tile: 4 rows (2 pairs) x 8 columns, as in gemm_s8s8s32_i8mm:
//
//                               b0 = col 0,1   b1 = col 2,3   b2 = col 4,5   b3 = col 6,7
//   pair 0 | row 0, row 1 |     acc[0][0]      acc[0][1]      acc[0][2]      acc[0][3]
//   pair 1 | row 2, row 3 |     acc[1][0]      acc[1][1]      acc[1][2]      acc[1][3]
//
//   acc[p][v] = | row0.col0  row0.col1  row1.col0  row1.col1 |; ZIP1/ZIP2 of two neighbours (64-bit) give rows.
//
// Rows go by blocks of 4, outside the tiles of B: chunks of 16 k that are zero in all rows of a block (E' is mostly
// zero) are found once per block and left out of every tile.
//
// Bound: 16 USMMLA per 16 k = 512 MAC; 8 cycles on Neoverse N2 and A710. No Cortex-A76 has it.
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {
namespace {

constexpr size_t kMaxDepth = 65536;  // kernel_table.h

// 4 columns of two rows, out of two 2x2 accumulators.
inline void store_pair(int32x4_t left, int32x4_t right, int32_t* row0, int32_t* row1, bool both) {
  const int64x2_t l = vreinterpretq_s64_s32(left), r = vreinterpretq_s64_s32(right);
  vst1q_s32(row0, vreinterpretq_s32_s64(vzip1q_s64(l, r)));
  if (both) vst1q_s32(row1, vreinterpretq_s32_s64(vzip2q_s64(l, r)));
}

template <int kPairs>
inline void step8(const int8_t* b, const uint8x16_t a[kPairs], int32x4_t acc[kPairs][4]) {
  for (int v = 0; v < 4; ++v) {
    const int8x16_t bv = vld1q_s8(b + 16 * v);
    for (int p = 0; p < kPairs; ++p) acc[p][v] = vusmmlaq_s32(acc[p][v], a[p], bv);
  }
}

// The chunks of 16 k of a row block that are not all zero, and where the k behind the last whole chunk begin.
struct Chunks {
  size_t count, tail;
  uint16_t k[kMaxDepth / 16];
};

// `single`: the pair has one row only; it is read twice and stored once.
template <int kPairs>
inline void rows_by_tile(const Chunks& chunks, size_t k, const uint8_t* a, size_t lda, const int8_t* b, int32_t* c,
                         size_t ldc, bool single) {
  int32x4_t acc[kPairs][4];
  uint8x16_t low[kPairs], high[kPairs];
  const size_t next = single ? 0 : lda;
  for (int p = 0; p < kPairs; ++p) {
    for (int v = 0; v < 4; ++v) acc[p][v] = vdupq_n_s32(0);
  }
  const uint16_t* const end = chunks.k + chunks.count;
  for (const uint16_t* chunk = chunks.k; chunk != end; ++chunk) {
    const int8_t* tile = b + *chunk * kTileRows;
    for (int p = 0; p < kPairs; ++p) {
      const uint8_t* row = a + 2 * p * lda + *chunk;
      const uint64x2_t r0 = vreinterpretq_u64_u8(vld1q_u8(row)), r1 = vreinterpretq_u64_u8(vld1q_u8(row + next));
      low[p] = vreinterpretq_u8_u64(vzip1q_u64(r0, r1));
      high[p] = vreinterpretq_u8_u64(vzip2q_u64(r0, r1));
    }
    step8<kPairs>(tile, low, acc);
    step8<kPairs>(tile + 64, high, acc);
  }
  if (chunks.tail < k) {
    for (int p = 0; p < kPairs; ++p) {
      const uint8_t* row = a + 2 * p * lda + chunks.tail;
      low[p] = vcombine_u8(vld1_u8(row), vld1_u8(row + next));
    }
    step8<kPairs>(b + chunks.tail * kTileRows, low, acc);
  }
  for (int p = 0; p < kPairs; ++p) {
    int32_t* row = c + 2 * p * ldc;
    store_pair(acc[p][0], acc[p][1], row, row + ldc, !single);
    store_pair(acc[p][2], acc[p][3], row + 4, row + ldc + 4, !single);
  }
}

}  // namespace

void gemm_u8s8s32_i8mm(size_t m, size_t n, size_t k, const uint8_t* a, size_t lda, const int8_t* b_packed,
                       size_t b_stride, int32_t* c, size_t ldc) {
  Chunks chunks;
  chunks.tail = k & ~size_t{15};
  for (size_t i = 0; i < m; i += 4, a += 4 * lda, c += 4 * ldc) {
    const size_t rows = m - i < 4 ? m - i : 4;
    chunks.count = nonzero_chunks(rows, chunks.tail, a, lda, chunks.k);
    const int8_t* b = b_packed;
    for (size_t j = 0; j < n; j += kTileRows, b += b_stride) {
      if (rows == 4) {
        rows_by_tile<2>(chunks, k, a, lda, b, c + j, ldc, false);
        continue;
      }
      rows_by_tile<1>(chunks, k, a, lda, b, c + j, ldc, rows == 1);
      if (rows == 3) rows_by_tile<1>(chunks, k, a + 2 * lda, lda, b, c + 2 * ldc + j, ldc, true);
    }
  }
}

}  // namespace intattention
