// y (f32) = x (s8, groups of 32) x W^T (4 bit, groups of 32, r8k4 planar) with USDOT by element.
//
// The same tile as gemm_w4a8_dotprod, with the nibbles as the unsigned operand they are:
//
//                                    left = columns 0..3     right = columns 4..7
//   x0[r] = k 0..15,  element v      acc[r][0] += left & 15   acc[r][1] += right & 15
//   x1[r] = k 16..31, element v      acc[r][0] += left >> 4   acc[r][1] += right >> 4
//   end of group                     out[r][0], out[r][1] (float) += (d*sx) * acc + mn*ssum
//
//   registers (4 rows): 8 s32 and 8 float accumulators, 8 of x, 4 of weights, the mask.
//
// Bound: USDOT has SDOT's rate, so m = 1 costs what gemm_w4a8_dotprod costs (unpacking and memory). No
// Cortex-A76 has it.
//
// Not done: SMMLA for m >= 2. It wants 8 k per column side by side: either r8k8 weights, and then m = 1 and m > 1
// need different layouts, or two ZIPs per pair of registers, amortised over 4 rows. On Apple M2 SMMLA has
// the MAC rate of USDOT, so it would pay on Neoverse N2 and A710 only.
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
  const uint8x16_t left_low = vandq_u8(left, mask), left_high = vshrq_n_u8(left, 4);
  const uint8x16_t right_low = vandq_u8(right, mask), right_high = vshrq_n_u8(right, 4);
  for (int r = 0; r < kRows; ++r) {
    acc[r][0] = vusdotq_laneq_s32(acc[r][0], left_low, x0[r], kLane);
    acc[r][1] = vusdotq_laneq_s32(acc[r][1], right_low, x0[r], kLane);
  }
  for (int r = 0; r < kRows; ++r) {
    acc[r][0] = vusdotq_laneq_s32(acc[r][0], left_high, x1[r], kLane);
    acc[r][1] = vusdotq_laneq_s32(acc[r][1], right_high, x1[r], kLane);
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

void gemm_w4a8_i8mm(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                    float* y, size_t ldy) {
  const size_t tile_bytes = k / kGroup * (kNibbleBytes + (has_min ? 32 : 16));
  for (size_t j = 0; j < n; j += kTileRows, weights += tile_bytes) {
    size_t i = 0;
    for (; i + 4 <= m; i += 4) rows_by_tile<4>(n - j, k, x, i, weights, has_min, y + i * ldy + j, ldy);
    for (; i < m; ++i) rows_by_tile<1>(n - j, k, x, i, weights, has_min, y + i * ldy + j, ldy);
  }
}

}  // namespace intattention
