// int4-weight x int8-activation linear with AVX512-VNNI on packed tiles (r8k4, packing.h).
//
// Nibbles are the unsigned operand of vpdpbusd, 4 broadcast activation bytes the signed one.
//
//   per group of 32 k, 32 columns, R rows: 8 joins + 24 unpack + 6 for scales + R * (16 vpdpbusd + 6 float)
//
// on the two 512-bit ports of an Intel core. R = 6: 170 operations, 85 cycles for 6144 MAC: 72 MAC per cycle. A Zen 5,
// which has vpdpbusd and fma on two of four ports, measures 92. R = 1, 16 columns: 33 operations, 17 cycles for 288
// bytes of weights.
//
// Rejected: one tile in 32-byte registers (the float steps cost the same for half the columns).
#include "gemm_wxa8_avx512vnni.h"
#include "kernels.h"

namespace intattention {
namespace {

template <bool kMin>
struct Weights4 {
  static constexpr bool kHasMin = kMin;
  static constexpr int32_t kZero = kMin ? 0 : 8;
  static constexpr size_t kScaleBytes = kMin ? 32 : 16;
  static constexpr size_t kGroupBytes = kScaleBytes + kTileRows * kGroup / 2;

  template <size_t R, size_t P>
  static inline void multiply(const TilePair (&w)[P], const int8_t* q, size_t ldq, __m512i (&sum)[R][P]) {
    const __m512i low_mask = _mm512_set1_epi8(0x0f);
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; ++v) {
      __m512i low[P], high[P];
#pragma GCC unroll 2
      for (size_t p = 0; p < P; ++p) {
        const __m512i raw = w[p].quants(kScaleBytes + v * 32);
        low[p] = _mm512_and_si512(raw, low_mask);
        high[p] = _mm512_and_si512(_mm512_srli_epi16(raw, 4), low_mask);
      }
#pragma GCC unroll 8
      for (size_t i = 0; i < R; ++i) {
        const int8_t* row = q + i * ldq + v * 4;
        const __m512i x0 = broadcast_4(row), x1 = broadcast_4(row + 16);
#pragma GCC unroll 2
        for (size_t p = 0; p < P; ++p) {
          multiply_add(sum[i][p], low[p], x0);
          multiply_add(sum[i][p], high[p], x1);
        }
      }
    }
  }
};

}  // namespace

void gemm_w4a8_avx512vnni(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                          float* y, size_t ldy) {
  if (has_min)
    gemm<Weights4<true>>(m, n, k, *x, weights, y, ldy);
  else
    gemm<Weights4<false>>(m, n, k, *x, weights, y, ldy);
}

}  // namespace intattention
