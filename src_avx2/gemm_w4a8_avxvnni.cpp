// int4-weight x int8-activation linear with AVX-VNNI on packed tiles (r8k4, packing.h).
//
// A 32-byte load holds 4 k of the 8 rows of a tile as planar nibbles; & 0x0F and >> 4 give two vectors of
// unsigned weights for vpdpbusd against 4 broadcast activation bytes: one weight row per 32-bit lane.
//
//   per group of 32 k, 8 columns, R rows:  4 loads, 12 unpack, R * (8 broadcasts + 8 vpdpbusd + 3 float)
//
// vpdpbusd, multiplications and fma run on ports 0 and 1. R = 4: 40 of them, 20 cycles for 1024 MAC: 51 MAC per cycle
// (39 measured on a Zen 5).
#include "gemm_wxa8_avx2.h"
#include "kernels.h"

namespace intattention {
namespace {

// As an instruction, because GCC 12 copies the sums around _mm256_dpbusd_avx_epi32.
inline void multiply_add(__m256i& sum, __m256i w, __m256i x) {
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x));
}

template <bool kMin>
struct Weights4 {
  static constexpr bool kHasMin = kMin;
  static constexpr int32_t kZero = kMin ? 0 : 8;
  static constexpr size_t kScaleBytes = kMin ? 32 : 16;
  static constexpr size_t kGroupBytes = kScaleBytes + kTileRows * kGroup / 2;

  template <size_t R>
  static inline void multiply(const uint8_t* quants, const int8_t* q, size_t ldq, const int32_t* start, size_t stride,
                              __m256i (&sum)[R]) {
    const __m256i low_mask = _mm256_set1_epi8(0x0f);
#pragma GCC unroll 4
    for (size_t i = 0; i < R; ++i) sum[i] = _mm256_set1_epi32(start[i * stride]);
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; ++v) {
      const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(quants + v * 32));
      const __m256i low = _mm256_and_si256(raw, low_mask);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(raw, 4), low_mask);
#pragma GCC unroll 4
      for (size_t i = 0; i < R; ++i) {
        const int8_t* row = q + i * ldq + v * 4;
        multiply_add(sum[i], low, broadcast_4(row));
        multiply_add(sum[i], high, broadcast_4(row + 16));
      }
    }
  }
};

}  // namespace

void gemm_w4a8_avxvnni(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                       float* y, size_t ldy) {
  if (has_min)
    gemm<Weights4<true>>(m, n, k, *x, weights, y, ldy);
  else
    gemm<Weights4<false>>(m, n, k, *x, weights, y, ldy);
}

}  // namespace intattention
