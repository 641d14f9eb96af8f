// int8-weight x int8-activation linear with AVX2 on packed tiles (packing.h).
//
// vpmaddubsw wants one unsigned operand: |w| against the activations with w's sign. |w| <= 128 and |x| <= 127
// (the quantiser never gives -128), so a pair is at most 32512 and does not saturate.
//
//   per 4 k, 8 columns, R rows: 1 load, 1 vpabsb, R * (broadcast, vpsignb, vpmaddubsw, vpmaddwd, vpaddd)
//
// R = 1: 272 bytes of weights in about 50 vector operations, 17 cycles: 16 bytes per cycle.
#include "gemm_wxa8_avx2.h"
#include "kernels.h"

namespace intattention {
namespace {

// sum += 4 products of |w| and x with w's sign. As instructions, because GCC 12 makes all products of a group first and
// has to store them.
inline void multiply_add(__m256i& sum, __m256i magnitude, __m256i w, __m256i x) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i product;
  __asm__("vpsignb %3, %4, %1\n\tvpmaddubsw %1, %2, %1\n\tvpmaddwd %5, %1, %1\n\tvpaddd %1, %0, %0"
          : "+x"(sum), "=&x"(product)
          : "x"(magnitude), "x"(w), "x"(x), "x"(ones));
}

struct Weights8 {
  static constexpr bool kHasMin = false;
  static constexpr int32_t kZero = 0;
  static constexpr size_t kScaleBytes = 16;
  static constexpr size_t kGroupBytes = kScaleBytes + kTileRows * kGroup;

  template <size_t R>
  static inline void multiply(const uint8_t* quants, const int8_t* q, size_t ldq, const int32_t* start, size_t stride,
                              __m256i (&sum)[R]) {
#pragma GCC unroll 4
    for (size_t i = 0; i < R; ++i) sum[i] = _mm256_set1_epi32(start[i * stride]);
#pragma GCC unroll 8
    for (size_t v = 0; v < kGroup / 4; ++v) {
      const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(quants + v * 32));
      const __m256i magnitude = _mm256_abs_epi8(w);
#pragma GCC unroll 4
      for (size_t i = 0; i < R; ++i) multiply_add(sum[i], magnitude, w, broadcast_4(q + i * ldq + v * 4));
    }
  }
};

}  // namespace

void gemm_w8a8_avx2(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, float* y,
                    size_t ldy) {
  gemm<Weights8>(m, n, k, *x, weights, y, ldy);
}

}  // namespace intattention
