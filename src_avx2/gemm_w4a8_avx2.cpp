// int4-weight x int8-activation linear with AVX2 on packed tiles (packing.h).
//
// A 32-byte load holds 4 k of the 8 rows of a tile as planar nibbles; & 0x0F and >> 4 give two vectors of
// unsigned weights for vpmaddubsw against 4 broadcast activation bytes. A pair sums to at most 15*127*2 = 3810
// in s16, eight of them (a group of 32 k) to 30480: one vpmaddwd per group widens to s32, one row per lane.
//
//   per group of 32 k, 8 columns, R rows:  4 loads, 12 unpack, R * (8 broadcasts + 8 vpmaddubsw + 8 vpaddw)
//                                          + R * (vpmaddwd + vpaddd + 3 float)
//
// R = 1: about 33 vector operations for 144 or 160 bytes of weights: 11 cycles, 13 bytes per cycle, above what DRAM
// gives one core. R = 4: about 98 for 1024 MAC on three ports: 33 cycles, 31 MAC per cycle
// (34 measured on a Zen 5).
#include "gemm_wxa8_avx2.h"
#include "kernels.h"

namespace intattention {
namespace {

// sum += pairs of products, 16 bit. As instructions, because GCC 12 makes all products of a group first and has to
// store them.
inline void multiply_add_16(__m256i& sum, __m256i w, __m256i x) {
  __m256i product;
  __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(w), "x"(x));
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
    __m256i sum16[R];
#pragma GCC unroll 4
    for (size_t i = 0; i < R; ++i) sum16[i] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; ++v) {
      const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(quants + v * 32));
      const __m256i low = _mm256_and_si256(raw, low_mask);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(raw, 4), low_mask);
#pragma GCC unroll 4
      for (size_t i = 0; i < R; ++i) {
        const int8_t* row = q + i * ldq + v * 4;
        multiply_add_16(sum16[i], low, broadcast_4(row));
        multiply_add_16(sum16[i], high, broadcast_4(row + 16));
      }
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < R; ++i)
      sum[i] =
          _mm256_add_epi32(_mm256_madd_epi16(sum16[i], _mm256_set1_epi16(1)), _mm256_set1_epi32(start[i * stride]));
  }
};

}  // namespace

void gemm_w4a8_avx2(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                    float* y, size_t ldy) {
  if (has_min)
    gemm<Weights4<true>>(m, n, k, *x, weights, y, ldy);
  else
    gemm<Weights4<false>>(m, n, k, *x, weights, y, ldy);
}

}  // namespace intattention
