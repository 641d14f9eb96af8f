// C (s32) = A (s8) x B^T (s8, r8k4) with SDOT by element.
//
// Tile: 8 rows of A x 8 columns (1 to 7 rows at the end and in decode). One step of 16 k holds 16 bytes of
// each row; SDOT takes 4 k of 4 columns from B and one 32-bit element (4 k) of a row:
//
//                        B, step of 4 k:  b0 = columns 0..3   b1 = columns 4..7     (x4: elements 0..3)
//   a0 |k0-3|k4-7|..|..|                  acc[0][0]           acc[0][1]
//   a1 |    |    |  |  |                  acc[1][0]           acc[1][1]
//    ...                                   ...                 ...
//   a7 |    |    |  |  |                  acc[7][0]           acc[7][1]
//
//   registers: 16 accumulators, 8 of A, 2 to 8 of B: 26 to 32.
//
// Bound on Cortex-A76: 64 SDOT at 0.5 cycle = 32 cycles for 1024 MAC; the 16 loads (8 cycles) and the 85
// instructions (22 cycles of decode) hide under them. Zeroing and storing C is 16 MOVI and 8 STP per tile.
// Decode (m = query heads per KV head) reads K once, in a tile of as many rows; with one row it is 2 SDOT
// per 2 loads, 16 MAC/cycle, and bound by reading K from DRAM anyway.
//
// Rejected: 4 x 8. The same bound in this model, but it reads B from L1 twice as often, and 2 loads per
// 8 SDOT leave an in-order core (A55, one load per cycle) less to hide them under.
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
void rows_by_tile(size_t k, const int8_t* a, size_t lda, const int8_t* b, int32_t* c, size_t ldc) {
  int32x4_t acc[kRows][2];
  int8x16_t ar[kRows];
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = vdupq_n_s32(0);
  const int8_t* row[kRows];
  for (int r = 0; r < kRows; ++r) row[r] = a + r * lda;
  size_t i = 0;
  for (; i + 16 <= k; i += 16, b += 128) {
    for (int r = 0; r < kRows; ++r) ar[r] = vld1q_s8(row[r] + i);
    step4<0, kRows>(b, ar, acc);
    step4<1, kRows>(b + 32, ar, acc);
    step4<2, kRows>(b + 64, ar, acc);
    step4<3, kRows>(b + 96, ar, acc);
  }
  for (; i < k; i += 4, b += 32) {
    for (int r = 0; r < kRows; ++r) ar[r] = load_dup4(row[r] + i);
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
  for (size_t j = 0; j < n; j += kTileRows, b_packed += b_stride, c += kTileRows) {
    size_t i = 0;
    for (; i + 8 <= m; i += 8) rows_by_tile<8>(k, a + i * lda, lda, b_packed, c + i * ldc, ldc);
    const int8_t* rest = a + i * lda;
    int32_t* out = c + i * ldc;
    switch (m - i) {
      case 1:
        rows_by_tile<1>(k, rest, lda, b_packed, out, ldc);
        break;
      case 2:
        rows_by_tile<2>(k, rest, lda, b_packed, out, ldc);
        break;
      case 3:
        rows_by_tile<3>(k, rest, lda, b_packed, out, ldc);
        break;
      case 4:
        rows_by_tile<4>(k, rest, lda, b_packed, out, ldc);
        break;
      case 5:
        rows_by_tile<5>(k, rest, lda, b_packed, out, ldc);
        break;
      case 6:
        rows_by_tile<6>(k, rest, lda, b_packed, out, ldc);
        break;
      case 7:
        rows_by_tile<7>(k, rest, lda, b_packed, out, ldc);
        break;
      default:
        break;
    }
  }
}

}  // namespace intattention
