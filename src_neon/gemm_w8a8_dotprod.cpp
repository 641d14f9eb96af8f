// y (f32) = x (s8, groups of 32) x W^T (8 bit, groups of 32, r8k4) with SDOT by element.
//
// One weight tile is 8 columns; one group of it is 8 f16 scales, then 256 bytes r8k4: 8 steps of 4 k x 8 columns.
//
//   step s < 4:   acc[r] += w . x0[r][s]           x0[r] = k 0..15 of row r
//   step s >= 4:  acc[r] += w . x1[r][s - 4]       x1[r] = k 16..31
//   group end     out[r] += d * (sx[r] * acc[r])   linear_panel.h
//
// Bound on Cortex-A76 in slots of its two vector pipes, per group of 8 rows x 4 columns (1024 MAC, 32 cycles of SDOT):
// 64 SDOT + 2 FCVTL + 16 FMLA = 82, 41 cycles, 78 % of SDOT's peak. m = 1, per group of 8 columns: 16 SDOT + 4 FCVTL
// + 4 FMLA = 24, 12 cycles for 272 bytes: beyond any DRAM behind an A76.
#include "gemm_wxa8_dotprod.h"
#include "kernels.h"

namespace intattention {
namespace {

struct Weights8 {
  static constexpr bool kHasMin = false;
  static constexpr int32_t kZero = 0;
  static constexpr size_t kScaleBytes = 16;
  static constexpr size_t kGroupBytes = kScaleBytes + kTileRows * kGroup;

  template <int kLane, int kRows, int kHalves>
  static inline void step(const uint8_t* quants, const int8x16_t (&x)[kRows], int32x4_t (&acc)[kRows][kHalves]) {
    int8x16_t w[kHalves];
    for (int h = 0; h < kHalves; ++h) w[h] = vreinterpretq_s8_u8(vld1q_u8(quants + 32 * kLane + 16 * h));
    step4<kLane>(w, x, acc);
  }

  template <int kRows, int kHalves>
  static inline void multiply(const uint8_t* quants, const int8_t* q, size_t ldq, int32x4_t (&acc)[kRows][kHalves]) {
    for (int half = 0; half < 2; ++half, quants += 128, q += 16) {
      int8x16_t x[kRows];
      load_rows(q, ldq, x);
      step<0>(quants, x, acc);
      step<1>(quants, x, acc);
      step<2>(quants, x, acc);
      step<3>(quants, x, acc);
    }
  }
};

}  // namespace

void gemm_w8a8_dotprod(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, float* y,
                       size_t ldy) {
  gemm<Weights8>(m, n, k, *x, weights, y, ldy);
}

}  // namespace intattention
