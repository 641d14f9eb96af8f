// y (f32) = x (s8, groups of 32) x W^T (4 bit, groups of 32, r8k4 planar) with SDOT by element.
//
// One weight tile is 8 columns; one group of it is 8 f16 scales (and 8 minima), then 128 bytes of nibbles.
// Register v = 0..3 of a half tile holds 4 columns x 4 k low and 4 columns x 4 k high (k + 16):
//
//              x0[r] = k 0..15 of row r                 x1[r] = k 16..31
//   v          acc[r] += (nibbles & 15) . x0[r][v]      acc[r] += (nibbles >> 4) . x1[r][v]
//   group end  out[r] += d * (sx[r] * acc[r])           linear_panel.h
//
// Nibbles are 0..15, the same bits as s8; the -8 of w4g32 is in the start of the sums. So unpacking is one AND and
// one shift per register.
//
// Bound on Cortex-A76 in slots of its two vector pipes, per group of 8 rows x 4 columns (1024 MAC, 32 cycles of SDOT):
// 64 SDOT + 4 AND + 4 USHR + 2 FCVTL + 16 FMLA = 90, 45 cycles, 71 % of SDOT's peak; w4g32a 2 FCVTL and 8 FMLA more,
// 64 %. m = 1, per group of 8 columns: 16 SDOT + 8 AND + 8 USHR + 4 FCVTL + 4 FMLA = 40, 20 cycles for 144 bytes.
//
// Rejected: SHL #4 instead of AND for the low nibble (x16 in the sum, one more magic number, and SHL has
// half the rate of AND). SCVTF (2 slots) and rounding every step (FMUL, FMUL, FMUL, FADD, FADD): 7 slots where FMLA
// takes 2 or 3; 40 % of peak in tiles of 4 rows x 8 columns.
#include "gemm_wxa8_dotprod.h"
#include "kernels.h"

namespace intattention {
namespace {

// Nibbles of k 4*kLane.. (low) or 16 + 4*kLane.. (high) of 4 * kHalves columns.
template <int kLane, bool kHigh, int kHalves>
inline void unpack(const uint8_t* quants, int8x16_t (&w)[kHalves]) {
  for (int h = 0; h < kHalves; ++h) {
    const uint8x16_t nibbles = vld1q_u8(quants + 32 * kLane + 16 * h);
    w[h] = vreinterpretq_s8_u8(kHigh ? vshrq_n_u8(nibbles, 4) : vandq_u8(nibbles, vdupq_n_u8(15)));
  }
}

template <bool kMin>
struct Weights4 {
  static constexpr bool kHasMin = kMin;
  static constexpr int32_t kZero = kMin ? 0 : 8;
  static constexpr size_t kScaleBytes = kMin ? 32 : 16;
  static constexpr size_t kGroupBytes = kScaleBytes + kTileRows * kGroup / 2;

  template <int kLane, bool kHigh, int kRows, int kHalves>
  static inline void step(const uint8_t* quants, const int8x16_t (&x)[kRows], int32x4_t (&acc)[kRows][kHalves]) {
    int8x16_t w[kHalves];
    unpack<kLane, kHigh>(quants, w);
    step4<kLane>(w, x, acc);
  }

  template <bool kHigh, int kRows, int kHalves>
  static inline void multiply16(const uint8_t* quants, const int8_t* q, size_t ldq, int32x4_t (&acc)[kRows][kHalves]) {
    int8x16_t x[kRows];
    load_rows(q, ldq, x);
    step<0, kHigh>(quants, x, acc);
    step<1, kHigh>(quants, x, acc);
    step<2, kHigh>(quants, x, acc);
    step<3, kHigh>(quants, x, acc);
  }

  template <int kRows, int kHalves>
  static inline void multiply(const uint8_t* quants, const int8_t* q, size_t ldq, int32x4_t (&acc)[kRows][kHalves]) {
    multiply16<false>(quants, q, ldq, acc);
    multiply16<true>(quants, q + 16, ldq, acc);
  }
};

}  // namespace

void gemm_w4a8_dotprod(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                       float* y, size_t ldy) {
  if (has_min)
    gemm<Weights4<true>>(m, n, k, *x, weights, y, ldy);
  else
    gemm<Weights4<false>>(m, n, k, *x, weights, y, ldy);
}

}  // namespace intattention
