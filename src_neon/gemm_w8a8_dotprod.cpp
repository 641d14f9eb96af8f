// y (f32) = x (s8, groups of 32) x W^T (8 bit, groups of 32, r8k4) with SDOT by element.
//
// One weight tile is 8 columns; one group of it is 8 f16 scales, then 256 bytes r8k4: 8 steps of 4 k.
//
//                                      left = columns 0..3    right = columns 4..7
//   step s < 4:  x0[r], element s      acc[r][0]              acc[r][1]
//   step s >= 4: x1[r], element s - 4  acc[r][0]              acc[r][1]
//   end of group                       out[r][0], out[r][1] (float) += (d*sx) * acc
//
//   registers (4 rows): 8 s32 and 8 float accumulators, 8 of x, 2 of weights.
//
// Bound on Cortex-A76, m = 1, per 272-byte group: 17 loads at 0.5 and 16 SDOT at 0.5 = 8.5 cycles beside 2 SCVTF
// + 2 FCVTL at 2.0 on V0; about 12 cycles: 22 bytes per cycle, beyond any DRAM behind an A76.
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {
namespace {

constexpr size_t kScaleBytes = 2 * kTileRows;
constexpr size_t kGroupBytes = kScaleBytes + kTileRows * kGroup;

template <int kLane, int kRows>
inline void step4(const int8_t* w, const int8x16_t x[kRows], int32x4_t acc[kRows][2]) {
  const int8x16_t left = vld1q_s8(w), right = vld1q_s8(w + 16);
  for (int r = 0; r < kRows; ++r) {
    acc[r][0] = vdotq_laneq_s32(acc[r][0], left, x[r], kLane);
    acc[r][1] = vdotq_laneq_s32(acc[r][1], right, x[r], kLane);
  }
}

template <int kRows>
inline void step16(const int8_t* w, const int8x16_t x[kRows], int32x4_t acc[kRows][2]) {
  step4<0, kRows>(w, x, acc);
  step4<1, kRows>(w + 32, x, acc);
  step4<2, kRows>(w + 64, x, acc);
  step4<3, kRows>(w + 96, x, acc);
}

template <int kRows>
inline void rows_by_tile(size_t columns, size_t k, const QuantizedRows* x, size_t row, const uint8_t* tile, float* y,
                         size_t ldy) {
  const size_t groups = k / kGroup;
  float32x4_t out[kRows][2];
  for (int r = 0; r < kRows; ++r) out[r][0] = out[r][1] = vdupq_n_f32(0.0f);

  for (size_t g = 0; g < groups; ++g, tile += kGroupBytes) {
    const int8_t* w = reinterpret_cast<const int8_t*>(tile + kScaleBytes);
    int32x4_t acc[kRows][2];
    int8x16_t x0[kRows], x1[kRows];
    for (int r = 0; r < kRows; ++r) {
      const int8_t* q = x->q + (row + r) * k + g * kGroup;
      x0[r] = vld1q_s8(q);
      x1[r] = vld1q_s8(q + 16);
      acc[r][0] = acc[r][1] = vdupq_n_s32(0);
    }
    step16<kRows>(w, x0, acc);
    step16<kRows>(w + 128, x1, acc);
    const float32x4_t d0 = load_f16x4(tile), d1 = load_f16x4(tile + 8);
    for (int r = 0; r < kRows; ++r) {
      const float sx = x->scale[(row + r) * groups + g];
      out[r][0] = add_w8_group(out[r][0], d0, sx, acc[r][0]);
      out[r][1] = add_w8_group(out[r][1], d1, sx, acc[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r) store_columns(y + r * ldy, columns, out[r][0], out[r][1]);
}

}  // namespace

void gemm_w8a8_dotprod(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, float* y,
                       size_t ldy) {
  const size_t tile_bytes = k / kGroup * kGroupBytes;
  for (size_t j = 0; j < n; j += kTileRows, weights += tile_bytes) {
    size_t i = 0;
    for (; i + 4 <= m; i += 4) rows_by_tile<4>(n - j, k, x, i, weights, y + i * ldy + j, ldy);
    for (; i < m; ++i) rows_by_tile<1>(n - j, k, x, i, weights, y + i * ldy + j, ldy);
  }
}

}  // namespace intattention
