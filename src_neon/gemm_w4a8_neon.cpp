// y (f32) = x (s8, groups of 32) x W^T (4 bit, groups of 32, r8k4 planar) without dot-product instructions.
//
// One weight tile is 8 columns; one group of it is 8 f16 scales (and 8 minima), then 128 bytes of nibbles.
// A 16-byte register of nibbles is 4 columns x 4 k low and 4 columns x 4 k high (k + 16):
//
//                        w (& 15 or >> 4): | c0 c0 c0 c0 c1 c1 c1 c1 | c2 ... c3 |        v = 0..3, twice
//   x row r, 4 bytes broadcast             | k0 k1 k2 k3 k0 k1 k2 k3 | ...       |
//   SMLAL (8 s16)                          | c0 c0 c0 c0 c1 c1 c1 c1 | acc[r][0]   | c2.. c3.. | acc[r][1]
//   per group: SADDLP, ADDP                | isum0 isum1 isum2 isum3 |             (c4..7: acc[r][2], acc[r][3])
//
// s16 is wide enough: a lane takes 8 products of at most 15 * 128, 15360 in all. Nibbles stay unsigned;
// the -8 of w4g32 is subtracted from the sum.
//   registers (4 rows): 16 s16 accumulators, 8 float ones, 4 of weights; x and the products pass through.
//
// Bound on Cortex-A76, m = 1, per 144-byte group: 32 SMLAL at 1.0 plus SCVTF and FCVTL at 2.0 on V0, about
// 40 cycles: 3.6 bytes per cycle.
//
// Rejected: SADALP after each product as in gemm_s8s8s32_neon (needed there only for -128 * -128).
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {
namespace {

constexpr size_t kNibbleBytes = kTileRows * kGroup / 2;

inline void add_4k(int16x8_t acc[4], int8x16_t left, int8x16_t right, int8x16_t x) {
  acc[0] = vmlal_s8(acc[0], vget_low_s8(left), vget_low_s8(x));
  acc[1] = vmlal_high_s8(acc[1], left, x);
  acc[2] = vmlal_s8(acc[2], vget_low_s8(right), vget_low_s8(x));
  acc[3] = vmlal_high_s8(acc[3], right, x);
}

inline int32x4_t sum_of_4k(int16x8_t columns01, int16x8_t columns23) {
  return vpaddq_s32(vpaddlq_s16(columns01), vpaddlq_s16(columns23));
}

template <int kRows>
inline void rows_by_tile(size_t columns, size_t k, const QuantizedRows* x, size_t row, const uint8_t* tile,
                         bool has_min, float* y, size_t ldy) {
  const size_t groups = k / kGroup, scale_bytes = has_min ? 32 : 16;
  float32x4_t out[kRows][2];
  for (int r = 0; r < kRows; ++r) out[r][0] = out[r][1] = vdupq_n_f32(0.0f);

  for (size_t g = 0; g < groups; ++g, tile += scale_bytes + kNibbleBytes) {
    const uint8_t* nibbles = tile + scale_bytes;
    int16x8_t acc[kRows][4];
    for (int r = 0; r < kRows; ++r) {
      for (int h = 0; h < 4; ++h) acc[r][h] = vdupq_n_s16(0);
    }
    for (int v = 0; v < 4; ++v) {
      const uint8x16_t left = vld1q_u8(nibbles + 32 * v), right = vld1q_u8(nibbles + 32 * v + 16);
      const uint8x16_t mask = vdupq_n_u8(15);
      const int8x16_t left_low = vreinterpretq_s8_u8(vandq_u8(left, mask));
      const int8x16_t left_high = vreinterpretq_s8_u8(vshrq_n_u8(left, 4));
      const int8x16_t right_low = vreinterpretq_s8_u8(vandq_u8(right, mask));
      const int8x16_t right_high = vreinterpretq_s8_u8(vshrq_n_u8(right, 4));
      for (int r = 0; r < kRows; ++r) {
        const int8_t* q = x->q + (row + r) * k + g * kGroup + 4 * v;
        add_4k(acc[r], left_low, right_low, load_dup4(q));
        add_4k(acc[r], left_high, right_high, load_dup4(q + 16));
      }
    }
    for (int r = 0; r < kRows; ++r) {
      const float sx = x->scale[(row + r) * groups + g];
      const int32_t xsum = x->sum[(row + r) * groups + g];
      for (int h = 0; h < 2; ++h) {
        const int32x4_t isum = sum_of_4k(acc[r][2 * h], acc[r][2 * h + 1]);
        const int32x4_t centred = has_min ? isum : vsubq_s32(isum, vdupq_n_s32(8 * xsum));
        out[r][h] = vfmaq_f32(out[r][h], load_f16x4(tile + 8 * h), vmulq_n_f32(vcvtq_f32_s32(centred), sx));
        if (has_min) out[r][h] = vfmaq_n_f32(out[r][h], load_f16x4(tile + 16 + 8 * h), sx * static_cast<float>(xsum));
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    store_columns(y + r * ldy, columns, 0, out[r][0]);
    store_columns(y + r * ldy, columns, 4, out[r][1]);
  }
}

}  // namespace

void gemm_w4a8_neon(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                    float* y, size_t ldy) {
  const size_t tile_bytes = k / kGroup * (kNibbleBytes + (has_min ? 32 : 16));
  for (size_t j = 0; j < n; j += kTileRows, weights += tile_bytes) {
    size_t i = 0;
    for (; i + 4 <= m; i += 4) rows_by_tile<4>(n - j, k, x, i, weights, has_min, y + i * ldy + j, ldy);
    for (; i < m; ++i) rows_by_tile<1>(n - j, k, x, i, weights, has_min, y + i * ldy + j, ldy);
  }
}

}  // namespace intattention
