// y (f32) = x (s8, groups of 32) x W^T (packed tiles of 8 columns, groups of 32) in 32-byte registers: what the 4-bit
// and the 8-bit kernels of AVX2 and AVX-VNNI share. A Weights type says how a group lies in memory and multiplies it:
//
//   kScaleBytes, kGroupBytes   f16 scales (and minima) of a group of a tile, and the group with its quants
//   kHasMin                    minima follow the scales
//   kZero                      the value of a weight operand that stands for 0: sums start at -kZero * xsum
//   multiply<R>(quants, q, ldq, start, stride, sum)
//                              sum[i] = start[i * stride] + 32 k of 8 columns for rows q + i * ldq
#pragma once

#include <immintrin.h>

#include <cstring>

#include "linear_panel.h"

namespace intattention {
namespace {

inline __m256 load_f16x8(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

inline __m256i broadcast_4(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm256_set1_epi32(four);
}

// The first `columns` lanes.
inline __m256i column_mask(size_t columns) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int32_t>(columns)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// One tile for the R rows of a block; `columns` of the 8 are stored. The next tile is `ahead` bytes further.
template <typename Weights, size_t R>
__attribute__((noinline)) void tile(const LinearBlock& block, const LinearPanel<R>& panel, const uint8_t* w,
                                    size_t ahead, size_t columns, float* y, size_t ldy) {
  const __m256i stored = column_mask(columns);
  const int8_t* q = block.q;
  __m256 out[R];
#pragma GCC unroll 4
  for (size_t i = 0; i < R; ++i) out[i] = block.add ? _mm256_maskload_ps(y + i * ldy, stored) : _mm256_setzero_ps();
  for (size_t g = 0; g < block.depth; ++g, q += kGroup, w += Weights::kGroupBytes) {
    if (R <= kPrefetchRows) prefetch_l2<Weights::kGroupBytes>(w + ahead);
    __m256i sum[R];
    Weights::template multiply<R>(w + Weights::kScaleBytes, q, block.ldq, &panel.start[0][g], panel.kGroups, sum);
    const __m256 d = load_f16x8(w);
#pragma GCC unroll 4
    for (size_t i = 0; i < R; ++i) {
      const __m256 isum = _mm256_sub_ps(_mm256_castsi256_ps(sum[i]), _mm256_set1_ps(kSumStartValue));
      out[i] = _mm256_fmadd_ps(d, _mm256_mul_ps(isum, _mm256_set1_ps(panel.scale[i][g])), out[i]);
    }
    if (!Weights::kHasMin) continue;
    const __m256 minimum = load_f16x8(w + kTileRows * sizeof(uint16_t));
#pragma GCC unroll 4
    for (size_t i = 0; i < R; ++i) out[i] = _mm256_fmadd_ps(minimum, _mm256_set1_ps(panel.scaled_sum[i][g]), out[i]);
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < R; ++i) {
    if (columns >= kTileRows)
      _mm256_storeu_ps(y + i * ldy, out[i]);
    else
      _mm256_maskstore_ps(y + i * ldy, stored, out[i]);
  }
}

// All columns for rows `row` .. row + R - 1.
template <typename Weights, size_t R>
inline void rows_of_x(size_t n, size_t k, const QuantizedRows& x, size_t row, const uint8_t* weights, float* y,
                      size_t ldy) {
  const size_t groups = k / kGroup, tile_bytes = groups * Weights::kGroupBytes;
  LinearPanel<R> panel;
  for (size_t first = 0; first < groups; first += panel.kGroups) {
    const size_t depth = groups - first < panel.kGroups ? groups - first : panel.kGroups;
    fill_panel(x, groups, row, first, depth, Weights::kZero, &panel);
    const LinearBlock block{x.q + row * k + first * kGroup, k, depth, first > 0};
    const uint8_t* w = weights + first * Weights::kGroupBytes;
    for (size_t j = 0; j < n; j += kTileRows, w += tile_bytes)
      tile<Weights, R>(block, panel, w, tile_bytes, n - j, y + j, ldy);
  }
}

template <typename Weights>
inline void gemm(size_t m, size_t n, size_t k, const QuantizedRows& x, const uint8_t* weights, float* y, size_t ldy) {
  size_t i = 0;
  for (; i + 4 <= m; i += 4) rows_of_x<Weights, 4>(n, k, x, i, weights, y + i * ldy, ldy);
  for (; i < m; ++i) rows_of_x<Weights, 1>(n, k, x, i, weights, y + i * ldy, ldy);
}

}  // namespace
}  // namespace intattention
