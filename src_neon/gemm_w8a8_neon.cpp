// y (f32) = x (s8, groups of 32) x W^T (8 bit, groups of 32, r8k4) without dot-product instructions.
//
// One weight tile is 8 columns; one group of it is 8 f16 scales, then 256 bytes r8k4: 8 steps of 4 k.
//
//                 left: columns 0..3 x 4 k       right: columns 4..7 x 4 k
//   x row r, 4 bytes broadcast:  step 2s  SMULL, step 2s + 1  SMLAL  -> 8 s16 of two columns
//   SADALP          | c0 c0 c1 c1 | acc[r][0]  | c2 c2 c3 c3 | acc[r][1]     (c4..7: acc[r][2], acc[r][3])
//   per group ADDP  | isum0 isum1 isum2 isum3 |
//
// Two products fit s16 because activations never are -128: 2 * 128 * 127 = 32512.
//   registers (4 rows): 16 s32 accumulators, 8 float ones (some spill; this tier reads, it does not race).
//
// Bound on Cortex-A76, m = 1, per 272-byte group: 32 SMULL/SMLAL at 1.0 plus SCVTF and FCVTL at 2.0 on V0:
// about 40 cycles, 6.8 bytes per cycle.
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {
namespace {

constexpr size_t kScaleBytes = 2 * kTileRows;
constexpr size_t kGroupBytes = kScaleBytes + kTileRows * kGroup;

// 8 k of 8 columns: two steps of r8k4 (64 bytes of weights, 8 bytes of x).
inline void add_8k(int32x4_t acc[4], const int8_t* w, const int8_t* x) {
  const int8x16_t x0 = load_dup4(x), x1 = load_dup4(x + 4);
  for (int half = 0; half < 2; ++half) {
    const int8x16_t w0 = vld1q_s8(w + 16 * half), w1 = vld1q_s8(w + 32 + 16 * half);
    const int16x8_t low = vmlal_s8(vmull_s8(vget_low_s8(w0), vget_low_s8(x0)), vget_low_s8(w1), vget_low_s8(x1));
    const int16x8_t high = vmlal_high_s8(vmull_high_s8(w0, x0), w1, x1);
    acc[2 * half] = vpadalq_s16(acc[2 * half], low);
    acc[2 * half + 1] = vpadalq_s16(acc[2 * half + 1], high);
  }
}

template <int kRows>
inline void rows_by_tile(size_t columns, size_t k, const QuantizedRows* x, size_t row, const uint8_t* tile, float* y,
                         size_t ldy) {
  const size_t groups = k / kGroup;
  float32x4_t out[kRows][2];
  for (int r = 0; r < kRows; ++r) out[r][0] = out[r][1] = vdupq_n_f32(0.0f);

  for (size_t g = 0; g < groups; ++g, tile += kGroupBytes) {
    const int8_t* w = reinterpret_cast<const int8_t*>(tile + kScaleBytes);
    int32x4_t acc[kRows][4];
    for (int r = 0; r < kRows; ++r) {
      for (int h = 0; h < 4; ++h) acc[r][h] = vdupq_n_s32(0);
    }
    for (int s = 0; s < 4; ++s) {
      for (int r = 0; r < kRows; ++r) add_8k(acc[r], w + 64 * s, x->q + (row + r) * k + g * kGroup + 8 * s);
    }
    for (int r = 0; r < kRows; ++r) {
      const float sx = x->scale[(row + r) * groups + g];
      for (int h = 0; h < 2; ++h) {
        const float32x4_t isum = vcvtq_f32_s32(vpaddq_s32(acc[r][2 * h], acc[r][2 * h + 1]));
        out[r][h] = vfmaq_f32(out[r][h], load_f16x4(tile + 8 * h), vmulq_n_f32(isum, sx));
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    store_columns(y + r * ldy, columns, 0, out[r][0]);
    store_columns(y + r * ldy, columns, 4, out[r][1]);
  }
}

}  // namespace

void gemm_w8a8_neon(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, float* y,
                    size_t ldy) {
  const size_t tile_bytes = k / kGroup * kGroupBytes;
  for (size_t j = 0; j < n; j += kTileRows, weights += tile_bytes) {
    size_t i = 0;
    for (; i + 4 <= m; i += 4) rows_by_tile<4>(n - j, k, x, i, weights, y + i * ldy + j, ldy);
    for (; i < m; ++i) rows_by_tile<1>(n - j, k, x, i, weights, y + i * ldy + j, ldy);
  }
}

}  // namespace intattention
