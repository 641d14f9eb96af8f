// y (f32) = x (s8, groups of 32) x W^T (4 bit, groups of 32, r8k4 planar) with SDOT by element.
//
// One weight tile is 8 columns; one group of it is 8 f16 scales (and 8 minima), then 128 bytes of nibbles.
// Two registers of nibbles (v = 0..3) are 8 columns x 4 k low and 8 columns x 4 k high (k + 16):
//
//                                    left = columns 0..3     right = columns 4..7
//   x0[r] = k 0..15,  element v      acc[r][0] += left & 15   acc[r][1] += right & 15
//   x1[r] = k 16..31, element v      acc[r][0] += left >> 4   acc[r][1] += right >> 4
//   end of group                     out[r][0], out[r][1] (float) += (d*sx) * acc + mn*ssum
//
// Nibbles are 0..15, the same bits as s8, and the -8 of w4g32 comes in through mn * ssum, so unpacking is
// one AND and one shift per register.
//   registers (4 rows): 8 s32 and 8 float accumulators, 8 of x, 4 of weights, the mask.
//
// Bound on Cortex-A76, m = 1, per 144-byte group: 16 SDOT + 8 AND at 0.5 on either pipe, 8 USHR at 1.0 on
// V1, 2 SCVTF + 2 FCVTL at 2.0 on V0, 10 float operations at 0.5: about 21 cycles, 6.8 bytes per cycle, 16 GB/s at
// 2.4 GHz: two cores saturate the RK3588's memory. With 4 rows 64 SDOT dominate: 3/4 of SDOT peak.
//
// Rejected: SHL #4 instead of AND for the low nibble (x16 in the sum, one more magic number, and SHL has
// half the rate of AND).
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {
namespace {

constexpr size_t kNibbleBytes = kTileRows * kGroup / 2;

// 4 k low and 4 k high of 8 columns: element kLane of x0 and x1.
template <int kLane, int kRows>
inline void step4(const uint8_t* nibbles, const int8x16_t x0[kRows], const int8x16_t x1[kRows],
                  int32x4_t acc[kRows][2]) {
  const uint8x16_t mask = vdupq_n_u8(15);
  const uint8x16_t left = vld1q_u8(nibbles), right = vld1q_u8(nibbles + 16);
  const int8x16_t left_low = vreinterpretq_s8_u8(vandq_u8(left, mask));
  const int8x16_t left_high = vreinterpretq_s8_u8(vshrq_n_u8(left, 4));
  const int8x16_t right_low = vreinterpretq_s8_u8(vandq_u8(right, mask));
  const int8x16_t right_high = vreinterpretq_s8_u8(vshrq_n_u8(right, 4));
  for (int r = 0; r < kRows; ++r) {
    acc[r][0] = vdotq_laneq_s32(acc[r][0], left_low, x0[r], kLane);
    acc[r][1] = vdotq_laneq_s32(acc[r][1], right_low, x0[r], kLane);
  }
  for (int r = 0; r < kRows; ++r) {
    acc[r][0] = vdotq_laneq_s32(acc[r][0], left_high, x1[r], kLane);
    acc[r][1] = vdotq_laneq_s32(acc[r][1], right_high, x1[r], kLane);
  }
}

template <int kRows>
inline void rows_by_tile(size_t columns, size_t k, const QuantizedRows* x, size_t row, const uint8_t* tile,
                         bool has_min, float* y, size_t ldy) {
  const size_t groups = k / kGroup, scale_bytes = has_min ? 32 : 16;
  float32x4_t out[kRows][2];
  for (int r = 0; r < kRows; ++r) out[r][0] = out[r][1] = vdupq_n_f32(0.0f);

  for (size_t g = 0; g < groups; ++g, tile += scale_bytes + kNibbleBytes) {
    const uint8_t* nibbles = tile + scale_bytes;
    int32x4_t acc[kRows][2];
    int8x16_t x0[kRows], x1[kRows];
    for (int r = 0; r < kRows; ++r) {
      const int8_t* q = x->q + (row + r) * k + g * kGroup;
      x0[r] = vld1q_s8(q);
      x1[r] = vld1q_s8(q + 16);
      acc[r][0] = acc[r][1] = vdupq_n_s32(0);
    }
    step4<0, kRows>(nibbles, x0, x1, acc);
    step4<1, kRows>(nibbles + 32, x0, x1, acc);
    step4<2, kRows>(nibbles + 64, x0, x1, acc);
    step4<3, kRows>(nibbles + 96, x0, x1, acc);
    const TileScales s = load_w4_scales(tile, has_min);
    for (int r = 0; r < kRows; ++r) {
      const float sx = x->scale[(row + r) * groups + g], ssum = x->scaled_sum[(row + r) * groups + g];
      out[r][0] = add_w4_group(out[r][0], s.d[0], s.mn[0], sx, ssum, acc[r][0]);
      out[r][1] = add_w4_group(out[r][1], s.d[1], s.mn[1], sx, ssum, acc[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r) store_columns(y + r * ldy, columns, out[r][0], out[r][1]);
}

}  // namespace

void gemm_w4a8_dotprod(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                       float* y, size_t ldy) {
  const size_t tile_bytes = k / kGroup * (kNibbleBytes + (has_min ? 32 : 16));
  for (size_t j = 0; j < n; j += kTileRows, weights += tile_bytes) {
    size_t i = 0;
    for (; i + 4 <= m; i += 4) rows_by_tile<4>(n - j, k, x, i, weights, has_min, y + i * ldy + j, ldy);
    for (; i < m; ++i) rows_by_tile<1>(n - j, k, x, i, weights, has_min, y + i * ldy + j, ldy);
  }
}

}  // namespace intattention
