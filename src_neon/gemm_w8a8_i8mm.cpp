// y (f32) = x (s8, groups of 32) x W^T (8 bit, groups of 32, r8k4) with SMMLA (gemm_wxa8_i8mm.h).
//
// Steps 2s, 2s + 1 of 4 k of a half tile, zipped by 32-bit lanes, are k 8s .. 8s+7 of column pairs.
//
// Bound in slots of two vector pipes, per group of 8 rows x 4 columns (1024 MAC): 32 SMMLA + 8 ZIP + 16 FMLA + FCVTL
// and 2 ZIP for d = 60, 30 cycles where SMMLA is as fast as SDOT (Neoverse N2): 107 % of SDOT's peak.
#include "gemm_wxa8_i8mm.h"
#include "kernels.h"

namespace intattention {
namespace {

struct Weights8 {
  static constexpr bool kHasMin = false;
  static constexpr int32_t kZero = 0;
  static constexpr size_t kScaleBytes = 16;
  static constexpr size_t kGroupBytes = kScaleBytes + kTileRows * kGroup;

  template <int kStep>
  static inline void step(const uint8_t* quants, const PairGroup& panel, int32x4_t (&acc)[kPairs][2]) {
    const uint32x4_t v0 = vreinterpretq_u32_u8(vld1q_u8(quants + 64 * kStep));
    const uint32x4_t v1 = vreinterpretq_u32_u8(vld1q_u8(quants + 64 * kStep + 32));
    multiply8<kStep>(vreinterpretq_s8_u32(vzip1q_u32(v0, v1)), vreinterpretq_s8_u32(vzip2q_u32(v0, v1)), panel, acc);
  }

  static inline void multiply(const uint8_t* quants, const PairGroup& panel, int32x4_t (&acc)[kPairs][2]) {
    step<0>(quants, panel, acc);
    step<1>(quants, panel, acc);
    step<2>(quants, panel, acc);
    step<3>(quants, panel, acc);
  }
};

}  // namespace

void gemm_w8a8_i8mm(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, float* y,
                    size_t ldy) {
  const size_t done = gemm<Weights8>(m, n, k, *x, weights, y, ldy);
  const QuantizedRows rest = skip_rows(*x, done, k);
  gemm_w8a8_dotprod(m - done, n, k, &rest, weights, y + done * ldy, ldy);
}

}  // namespace intattention
