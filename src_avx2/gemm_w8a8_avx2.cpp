// int8-weight x int8-activation linear with AVX2 on packed tiles (packing.h).
//
// vpmaddubsw wants one unsigned operand: |w| against the activations with w's sign. |w| <= 128 and |x| <= 127
// (the quantiser never gives -128), so a pair is at most 32512 and does not saturate.
//
//   per 4 k, 8 columns, R rows: 1 load, 1 vpabsb, R * (broadcast, vpsignb, vpmaddubsw, vpmaddwd, vpaddd)
//
// R = 1: 272 bytes of weights in about 50 vector operations, 17 cycles: 16 bytes per cycle.
#include <immintrin.h>

#include <cstring>

#include "kernels.h"

namespace intattention {
namespace {

constexpr size_t kRows = 4;
constexpr size_t kScaleBytes = 16;  // 8 f16
constexpr size_t kQuantBytes = 256;

inline __m256i broadcast_4(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm256_set1_epi32(four);
}

// sum += 4 products of |w| and x with w's sign. As instructions, because GCC 12 makes all products of a group first and
// has to store them.
inline void multiply_add(__m256i& sum, __m256i magnitude, __m256i w, __m256i x) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i product;
  __asm__("vpsignb %3, %4, %1\n\tvpmaddubsw %1, %2, %1\n\tvpmaddwd %5, %1, %1\n\tvpaddd %1, %0, %0"
          : "+x"(sum), "=&x"(product)
          : "x"(magnitude), "x"(w), "x"(x), "x"(ones));
}

// Integer sums of one group for R rows of activations (x + i * ldx): 8 x s32 each, one weight row per lane.
template <size_t R>
inline void group_sums(const uint8_t* quants, const int8_t* x, size_t ldx, __m256i* isum) {
#pragma GCC unroll 4
  for (size_t i = 0; i < R; ++i) isum[i] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (size_t kk = 0; kk < kGroup; kk += 4) {
    const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(quants + kk * kTileRows));
    const __m256i magnitude = _mm256_abs_epi8(w);
#pragma GCC unroll 4
    for (size_t i = 0; i < R; ++i) {
      multiply_add(isum[i], magnitude, w, broadcast_4(x + i * ldx + kk));
    }
  }
}

// One tile of 8 columns for R rows; `columns` of them are stored.
template <size_t R>
__attribute__((noinline)) void tile(size_t k, const QuantizedRows& x, size_t first, const uint8_t* w, size_t columns,
                                    float* y, size_t ldy) {
  const size_t groups = k / kGroup;
  const int8_t* q = x.q + first * k;
  const float* scale = x.scale + first * groups;
  __m256 sum[R];
#pragma GCC unroll 4
  for (size_t i = 0; i < R; ++i) sum[i] = _mm256_setzero_ps();
  for (size_t g = 0; g < groups; ++g, w += kScaleBytes + kQuantBytes) {
    const __m256 d = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w)));
    __m256i isum[R];
    group_sums<R>(w + kScaleBytes, q + g * kGroup, k, isum);
#pragma GCC unroll 4
    for (size_t i = 0; i < R; ++i) {
      const __m256 sx = _mm256_set1_ps(scale[i * groups + g]);
      sum[i] = _mm256_add_ps(sum[i], _mm256_mul_ps(_mm256_mul_ps(d, sx), _mm256_cvtepi32_ps(isum[i])));
    }
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < R; ++i) {
    if (columns == kTileRows) {
      _mm256_storeu_ps(y + i * ldy, sum[i]);
      continue;
    }
    alignas(32) float lanes[kTileRows];
    _mm256_store_ps(lanes, sum[i]);
    std::memcpy(y + i * ldy, lanes, columns * sizeof(float));
  }
}

}  // namespace

void gemm_w8a8_avx2(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, float* y,
                    size_t ldy) {
  const size_t tile_bytes = k / kGroup * (kScaleBytes + kQuantBytes);
  for (size_t n0 = 0; n0 < n; n0 += kTileRows, weights += tile_bytes) {
    const size_t columns = n - n0 < kTileRows ? n - n0 : kTileRows;
    size_t i = 0;
    for (; i + kRows <= m; i += kRows) tile<kRows>(k, *x, i, weights, columns, y + i * ldy + n0, ldy);
    for (; i < m; ++i) tile<1>(k, *x, i, weights, columns, y + i * ldy + n0, ldy);
  }
}

}  // namespace intattention
