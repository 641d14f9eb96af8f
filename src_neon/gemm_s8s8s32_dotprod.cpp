// C (s32) = A (s8) x B^T (s8, r8k4) with SDOT by element.
//
// Tile: 4 rows of A x 8 columns. One step of 16 k holds 16 bytes of each row; SDOT takes 4 k of 4 columns
// from B and one 32-bit element (4 k) of a row:
//
//                        B, step of 4 k:  b0 = columns 0..3   b1 = columns 4..7     (x4: elements 0..3)
//   a0 |k0-3|k4-7|..|..|                  acc[0][0]           acc[0][1]
//   a1 |    |    |  |  |                  acc[1][0]           acc[1][1]
//   a2 |    |    |  |  |                  acc[2][0]           acc[2][1]
//   a3 |    |    |  |  |                  acc[3][0]           acc[3][1]
//
//   registers: 8 accumulators, 4 of A, 2..8 of B. 8 chains cover SDOT's latency (2) x issue (2).
//
// Bound on Cortex-A76: 32 SDOT at 0.5 cycle = 16 cycles for 512 MAC; the 12 loads (6 cycles) hide under
// them. Decode (m = query heads per KV head, often 1 to 4) reads K once, in a tile of as many rows; with
// one row it is 2 SDOT per 2 loads, 16 MAC/cycle, and bound by reading K from DRAM anyway.
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

template <int kRows>
inline void rows_by_tile(size_t k, const int8_t* a, size_t lda, const int8_t* b, int32_t* c, size_t ldc) {
  int32x4_t acc[kRows][2];
  int8x16_t ar[kRows];
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = vdupq_n_s32(0);
  size_t i = 0;
  for (; i + 16 <= k; i += 16, b += 128) {
    for (int r = 0; r < kRows; ++r) ar[r] = vld1q_s8(a + r * lda + i);
    step4<0, kRows>(b, ar, acc);
    step4<1, kRows>(b + 32, ar, acc);
    step4<2, kRows>(b + 64, ar, acc);
    step4<3, kRows>(b + 96, ar, acc);
  }
  for (; i < k; i += 4, b += 32) {
    for (int r = 0; r < kRows; ++r) ar[r] = load_dup4(a + r * lda + i);
    step4<0, kRows>(b, ar, acc);
  }
  for (int r = 0; r < kRows; ++r) {
    vst1q_s32(c + r * ldc, acc[r][0]);
    vst1q_s32(c + r * ldc + 4, acc[r][1]);
  }
}

}  // namespace

void gemm_s8s8s32_dotprod(size_t m, size_t n, size_t k, const int8_t* a, size_t lda, const int8_t* b_packed,
                          size_t b_stride, int32_t* c, size_t ldc) {
  for (size_t j = 0; j < n; j += kTileRows, b_packed += b_stride) {
    size_t i = 0;
    for (; i + 4 <= m; i += 4) rows_by_tile<4>(k, a + i * lda, lda, b_packed, c + i * ldc + j, ldc);
    const size_t left = m - i;
    if (left == 3) rows_by_tile<3>(k, a + i * lda, lda, b_packed, c + i * ldc + j, ldc);
    if (left == 2) rows_by_tile<2>(k, a + i * lda, lda, b_packed, c + i * ldc + j, ldc);
    if (left == 1) rows_by_tile<1>(k, a + i * lda, lda, b_packed, c + i * ldc + j, ldc);
  }
}

}  // namespace intattention
