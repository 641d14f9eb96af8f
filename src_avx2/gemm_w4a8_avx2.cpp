// int4-weight x int8-activation linear with AVX2 on packed tiles (packing.h).
//
// A 32-byte load holds 4 k of the 8 rows of a tile as planar nibbles; & 0x0F and >> 4 give two vectors of
// unsigned weights for vpmaddubsw against 4 broadcast activation bytes. A pair sums to at most 15*127*2 = 3810
// in s16, eight of them (a group of 32 k) to 30480: one vpmaddwd per group widens to s32, one row per lane.
//
//   per group of 32 k, 8 columns, R rows:  4 loads, 12 unpack, R * (8 broadcasts + 8 vpmaddubsw + 8 vpaddw)
//                                          + R * 8 for scale and minimum
//
// R = 1: about 36 vector operations for 144 or 160 bytes of weights: 12 cycles, 12 bytes per cycle, above what DRAM
// gives one core. R = 4: about 110 for 1024 MAC: 37 cycles, 28 MAC per cycle (24 measured).
#include <immintrin.h>

#include <cstring>

#include "kernels.h"

namespace intattention {
namespace {

constexpr size_t kRows = 4;
constexpr size_t kScaleBytes = 16;  // 8 f16
constexpr size_t kQuantBytes = 128;

inline __m256 load_f16x8(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

inline __m256i broadcast_4(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm256_set1_epi32(four);
}

// sum += pairs of products, 16 bit. As instructions, because GCC 12 makes all products of a group first and has to
// store them.
inline void multiply_add_16(__m256i& sum, __m256i w, __m256i x) {
  __m256i product;
  __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(w), "x"(x));
}

// Integer sums of one group for R rows of activations (x + i * ldx): 8 x s32 each, one weight row per lane.
template <size_t R>
inline void group_sums(const uint8_t* quants, const int8_t* x, size_t ldx, __m256i* isum) {
  const __m256i low_mask = _mm256_set1_epi8(0x0f);
  __m256i sum[R];
#pragma GCC unroll 4
  for (size_t i = 0; i < R; ++i) sum[i] = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (size_t v = 0; v < 4; ++v) {
    const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(quants + v * 32));
    const __m256i low = _mm256_and_si256(raw, low_mask);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(raw, 4), low_mask);
#pragma GCC unroll 4
    for (size_t i = 0; i < R; ++i) {
      const int8_t* row = x + i * ldx + v * 4;
      multiply_add_16(sum[i], low, broadcast_4(row));
      multiply_add_16(sum[i], high, broadcast_4(row + 16));
    }
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < R; ++i) isum[i] = _mm256_madd_epi16(sum[i], _mm256_set1_epi16(1));
}

// One tile of 8 columns for R rows; `columns` of them are stored.
template <size_t R, bool HasMin>
__attribute__((noinline)) void tile(size_t k, const QuantizedRows& x, size_t first, const uint8_t* w, size_t columns,
                                    float* y, size_t ldy) {
  const size_t groups = k / kGroup;
  const int8_t* q = x.q + first * k;
  const float* scale = x.scale + first * groups;
  const float* scaled_sum = x.scaled_sum + first * groups;
  __m256 sum[R];
#pragma GCC unroll 4
  for (size_t i = 0; i < R; ++i) sum[i] = _mm256_setzero_ps();
  for (size_t g = 0; g < groups; ++g) {
    const __m256 d = load_f16x8(w);
    const __m256 minimum = HasMin ? load_f16x8(w + kScaleBytes) : _mm256_mul_ps(_mm256_set1_ps(-8.0f), d);
    w += HasMin ? 2 * kScaleBytes : kScaleBytes;
    __m256i isum[R];
    group_sums<R>(w, q + g * kGroup, k, isum);
    w += kQuantBytes;
#pragma GCC unroll 4
    for (size_t i = 0; i < R; ++i) {
      const __m256 sx = _mm256_set1_ps(scale[i * groups + g]), ssum = _mm256_set1_ps(scaled_sum[i * groups + g]);
      const __m256 product = _mm256_mul_ps(_mm256_mul_ps(d, sx), _mm256_cvtepi32_ps(isum[i]));
      sum[i] = _mm256_add_ps(sum[i], _mm256_add_ps(product, _mm256_mul_ps(minimum, ssum)));
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

template <bool HasMin>
inline void gemm(size_t m, size_t n, size_t k, const QuantizedRows& x, const uint8_t* weights, float* y, size_t ldy) {
  const size_t tile_bytes = k / kGroup * (kQuantBytes + (HasMin ? 2 : 1) * kScaleBytes);
  for (size_t n0 = 0; n0 < n; n0 += kTileRows, weights += tile_bytes) {
    const size_t columns = n - n0 < kTileRows ? n - n0 : kTileRows;
    size_t i = 0;
    for (; i + kRows <= m; i += kRows) tile<kRows, HasMin>(k, x, i, weights, columns, y + i * ldy + n0, ldy);
    for (; i < m; ++i) tile<1, HasMin>(k, x, i, weights, columns, y + i * ldy + n0, ldy);
  }
}

}  // namespace

void gemm_w4a8_avx2(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                    float* y, size_t ldy) {
  if (has_min)
    gemm<true>(m, n, k, *x, weights, y, ldy);
  else
    gemm<false>(m, n, k, *x, weights, y, ldy);
}

}  // namespace intattention
