// y (f32) = x (s8, groups of 32) x W^T (4 bit, groups of 32, r8k4 planar) with SMMLA (gemm_wxa8_i8mm.h).
//
// Registers v, v + 1 of a half tile (v = 0, 2) hold k 4v .. 4v+7 low and 16 more high; zipped before they are unpacked,
// so that one ZIP serves both nibbles.
//
// Bound in slots of two vector pipes, per group of 8 rows x 4 columns (1024 MAC): 32 SMMLA + 4 ZIP + 4 AND + 4 USHR +
// 16 FMLA + FCVTL and 2 ZIP for d = 64, 32 cycles where SMMLA is as fast as SDOT (Neoverse N2): 100 % of SDOT's peak,
// 50 % of SMMLA's; SDOT gets 69 %. w4g32a 8 FMLA, FCVTL and 2 ZIP more: 38 cycles, 84 %.
#include "gemm_wxa8_i8mm.h"
#include "kernels.h"

namespace intattention {
namespace {

template <bool kMin>
struct Weights4 {
  static constexpr bool kHasMin = kMin;
  static constexpr int32_t kZero = kMin ? 0 : 8;
  static constexpr size_t kScaleBytes = kMin ? 32 : 16;
  static constexpr size_t kGroupBytes = kScaleBytes + kTileRows * kGroup / 2;

  // k 8*kStep .. 8*kStep + 7 and 16 more.
  template <int kStep>
  static inline void multiply16(const uint8_t* quants, const PairGroup& panel, int32x4_t (&acc)[kPairs][2]) {
    const uint8x16_t mask = vdupq_n_u8(15);
    const uint32x4_t v0 = vreinterpretq_u32_u8(vld1q_u8(quants + 64 * kStep));
    const uint32x4_t v1 = vreinterpretq_u32_u8(vld1q_u8(quants + 64 * kStep + 32));
    const uint8x16_t w01 = vreinterpretq_u8_u32(vzip1q_u32(v0, v1)), w23 = vreinterpretq_u8_u32(vzip2q_u32(v0, v1));
    multiply8<kStep>(vreinterpretq_s8_u8(vandq_u8(w01, mask)), vreinterpretq_s8_u8(vandq_u8(w23, mask)), panel, acc);
    multiply8<kStep + 2>(vreinterpretq_s8_u8(vshrq_n_u8(w01, 4)), vreinterpretq_s8_u8(vshrq_n_u8(w23, 4)), panel, acc);
  }

  static inline void multiply(const uint8_t* quants, const PairGroup& panel, int32x4_t (&acc)[kPairs][2]) {
    multiply16<0>(quants, panel, acc);
    multiply16<1>(quants, panel, acc);
  }
};

}  // namespace

void gemm_w4a8_i8mm(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                    float* y, size_t ldy) {
  const size_t done = has_min ? gemm<Weights4<true>>(m, n, k, *x, weights, y, ldy)
                              : gemm<Weights4<false>>(m, n, k, *x, weights, y, ldy);
  const QuantizedRows rest = skip_rows(*x, done, k);
  gemm_w4a8_dotprod(m - done, n, k, &rest, weights, has_min, y + done * ldy, ldy);
}

}  // namespace intattention
