// y (f32) = x (s8, groups of 32) x W^T (packed tiles, groups of 32) with AVX512-VNNI: what the 4-bit and the 8-bit
// kernel share. Two tiles are joined to 16 columns per register. A Weights type says how a group lies in memory:
//
//   kScaleBytes, kGroupBytes     f16 scales (and minima) of a group of a tile, and the group with its quants
//   kHasMin                      minima follow the scales
//   kZero                        the unsigned value that stands for 0: sums start at -kZero * xsum
//   multiply(w, q, ldq, sum)     sum[i][p] += 32 k of 16 columns (pair p) for rows q + i * ldq
//
// A broadcast of 4 activation bytes serves one product per pair. With one pair (8 rows) the two load ports set the
// pace: 64 broadcasts + 36 other loads for 64 vpdpbusd, 75 MAC per cycle on a Zen 5. With two pairs and 6 rows it is 82
// for 96, 92 MAC per cycle.
//
//   registers (6 rows, 2 pairs): 12 float and 12 s32 sums, 4 of nibbles, d, broadcasts, mask
#pragma once

#include <immintrin.h>

#include <cstring>

#include "linear_panel.h"

namespace intattention {
namespace {

constexpr size_t kColumns = 2 * kTileRows;

// The same bytes of two neighbouring tiles.
struct TilePair {
  const uint8_t *first, *second;

  __m512 f16(size_t offset) const {
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(first + offset));
    const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(second + offset));
    return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1));
  }
  __m512i quants(size_t offset) const {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first + offset));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second + offset));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  // What is `ahead` bytes further: N bytes of both tiles.
  template <size_t N>
  void prefetch(size_t ahead) const {
    prefetch_l2<N>(first + ahead);
    prefetch_l2<N>(second + ahead);
  }
  void advance(size_t bytes) {
    first += bytes;
    second += bytes;
  }
};

inline __m512i broadcast_4(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm512_set1_epi32(four);
}

// As an instruction, because GCC 12 copies the sums around _mm512_dpbusd_epi32.
inline void multiply_add(__m512i& sum, __m512i w, __m512i x) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
}

inline __m512 sum_to_float(__m512i sum) {
  return _mm512_sub_ps(_mm512_castsi512_ps(sum), _mm512_set1_ps(kSumStartValue));
}

// P pairs of tiles for the R rows of a block; `columns` of the 16 of the last pair are stored. The next P pairs are
// `ahead` bytes further.
template <typename Weights, size_t R, size_t P>
__attribute__((noinline)) void tile_pairs(const LinearBlock& block, const LinearPanel<R>& panel, const TilePair* tiles,
                                          size_t ahead, size_t columns, float* y, size_t ldy) {
  const __mmask16 last = static_cast<__mmask16>((1u << columns) - 1);
  const int8_t* q = block.q;
  TilePair w[P];
  __m512 out[R][P];
#pragma GCC unroll 8
  for (size_t p = 0; p < P; ++p) w[p] = tiles[p];
#pragma GCC unroll 8
  for (size_t i = 0; i < R; ++i)
#pragma GCC unroll 2
    for (size_t p = 0; p < P; ++p)
      out[i][p] = block.add ? _mm512_maskz_loadu_ps(p + 1 < P ? 0xffff : last, y + i * ldy + p * kColumns)
                            : _mm512_setzero_ps();
  for (size_t g = 0; g < block.depth; ++g, q += kGroup) {
    if (R <= kPrefetchRows) {
#pragma GCC unroll 2
      for (size_t p = 0; p < P; ++p) w[p].template prefetch<Weights::kGroupBytes>(ahead);
    }
    __m512i sum[R][P];
#pragma GCC unroll 8
    for (size_t i = 0; i < R; ++i)
#pragma GCC unroll 2
      for (size_t p = 0; p < P; ++p) sum[i][p] = _mm512_set1_epi32(panel.start[i][g]);
    Weights::template multiply<R, P>(w, q, block.ldq, sum);
    __m512 d[P];
#pragma GCC unroll 2
    for (size_t p = 0; p < P; ++p) d[p] = w[p].f16(0);
#pragma GCC unroll 8
    for (size_t i = 0; i < R; ++i) {
      const __m512 scale = _mm512_set1_ps(panel.scale[i][g]);
#pragma GCC unroll 2
      for (size_t p = 0; p < P; ++p)
        out[i][p] = _mm512_fmadd_ps(d[p], _mm512_mul_ps(sum_to_float(sum[i][p]), scale), out[i][p]);
    }
    if (Weights::kHasMin) {
#pragma GCC unroll 2
      for (size_t p = 0; p < P; ++p) d[p] = w[p].f16(kTileRows * sizeof(uint16_t));
#pragma GCC unroll 8
      for (size_t i = 0; i < R; ++i)
#pragma GCC unroll 2
        for (size_t p = 0; p < P; ++p)
          out[i][p] = _mm512_fmadd_ps(d[p], _mm512_set1_ps(panel.scaled_sum[i][g]), out[i][p]);
    }
#pragma GCC unroll 2
    for (size_t p = 0; p < P; ++p) w[p].advance(Weights::kGroupBytes);
  }
#pragma GCC unroll 8
  for (size_t i = 0; i < R; ++i)
#pragma GCC unroll 2
    for (size_t p = 0; p < P; ++p)
      _mm512_mask_storeu_ps(y + i * ldy + p * kColumns, p + 1 < P ? 0xffff : last, out[i][p]);
}

// All columns for rows `row` .. row + R - 1, 16 * P at a time.
template <typename Weights, size_t R, size_t P>
inline void rows_of_x(size_t n, size_t k, const QuantizedRows& x, size_t row, const uint8_t* weights, float* y,
                      size_t ldy) {
  const size_t groups = k / kGroup, tile_bytes = groups * Weights::kGroupBytes;
  LinearPanel<R> panel;
  for (size_t first = 0; first < groups; first += panel.kGroups) {
    const size_t depth = groups - first < panel.kGroups ? groups - first : panel.kGroups;
    fill_panel(x, groups, row, first, depth, Weights::kZero, &panel);
    const LinearBlock block{x.q + row * k + first * kGroup, k, depth, first > 0};
    const uint8_t* w = weights + first * Weights::kGroupBytes;
    size_t j = 0;
    for (; P > 1 && j + (P - 1) * kColumns < n; j += P * kColumns, w += 2 * P * tile_bytes) {
      const size_t columns = n - j < P * kColumns ? n - j - (P - 1) * kColumns : kColumns;
      TilePair tiles[P];
      for (size_t p = 0; p < P; ++p) tiles[p] = {w + 2 * p * tile_bytes, w + (2 * p + 1) * tile_bytes};
      if (columns <= kTileRows) tiles[P - 1].second = tiles[P - 1].first;
      tile_pairs<Weights, R, P>(block, panel, tiles, 2 * P * tile_bytes, columns, y + j, ldy);
    }
    for (; j < n; j += kColumns, w += 2 * tile_bytes) {
      const size_t columns = n - j < kColumns ? n - j : kColumns;
      // a last single tile fills both halves; the second is not stored
      const TilePair tiles{w, columns > kTileRows ? w + tile_bytes : w};
      tile_pairs<Weights, R, 1>(block, panel, &tiles, 2 * tile_bytes, columns, y + j, ldy);
    }
  }
}

// m rows in blocks of 6, or of nearly equal height so that none is left with one row.
template <typename Weights>
inline void gemm(size_t m, size_t n, size_t k, const QuantizedRows& x, const uint8_t* weights, float* y, size_t ldy) {
  size_t blocks = (m + 5) / 6;
  for (size_t i = 0, rows = 0; i < m; i += rows, --blocks) {
    rows = (m - i + blocks - 1) / blocks;
    float* out = y + i * ldy;
    switch (rows) {
      case 6:
        rows_of_x<Weights, 6, 2>(n, k, x, i, weights, out, ldy);
        break;
      case 5:
        rows_of_x<Weights, 5, 2>(n, k, x, i, weights, out, ldy);
        break;
      case 4:
        rows_of_x<Weights, 4, 2>(n, k, x, i, weights, out, ldy);
        break;
      case 3:
        rows_of_x<Weights, 3, 2>(n, k, x, i, weights, out, ldy);
        break;
      case 2:
        rows_of_x<Weights, 2, 2>(n, k, x, i, weights, out, ldy);
        break;
      default:
        rows_of_x<Weights, 1, 1>(n, k, x, i, weights, out, ldy);
    }
  }
}

}  // namespace
}  // namespace intattention
