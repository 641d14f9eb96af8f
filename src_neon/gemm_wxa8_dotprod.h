// y (f32) = x (s8, groups of 32) x W^T (packed tiles of 8 columns, groups of 32) with SDOT by element: what the
// 4-bit and the 8-bit kernel share. A Weights type says how a group lies in memory and multiplies it:
//
//   kScaleBytes, kGroupBytes   f16 scales (and minima) of a group of a tile, and the group with its quants
//   kHasMin                    minima follow the scales
//   kZero                      the integer that stands for 0: sums start at -kZero * xsum
//   multiply(w, q, ldq, acc)   acc[r][h] += 32 k of columns 4*h..4*h+3; w, q at the group
//
//   8 or 4 rows x 4 columns: 8 s32 and 8 float accumulators, 8 of x (k 0..15, then 16..31), weights, d: 28 registers.
//   2 or 1 rows x 8 columns: both halves of a tile at once.
//
// Rejected: 4 rows x 8 columns (does not fit: out spills, 60 cycles for 1024 MAC instead of 50).
#pragma once

#include "linear_panel.h"

namespace intattention {
namespace {

template <int kRows>
inline void load_rows(const int8_t* q, size_t ldq, int8x16_t (&x)[kRows]) {
  for (int r = 0; r < kRows; ++r) x[r] = vld1q_s8(q + r * ldq);
}

// 4 k of 4 * kHalves columns for every row: element kLane of x.
template <int kLane, int kRows, int kHalves>
inline void step4(const int8x16_t (&w)[kHalves], const int8x16_t (&x)[kRows], int32x4_t (&acc)[kRows][kHalves]) {
  for (int r = 0; r < kRows; ++r)
    for (int h = 0; h < kHalves; ++h) acc[r][h] = vdotq_laneq_s32(acc[r][h], w[h], x[r], kLane);
}

// Rows and groups that every column shares.
struct Panel {
  const int8_t* q;  // first row, first group
  size_t ldq, depth;
  bool add;  // continues the sums in y
};

// kHalves * 4 columns of a tile for the rows of a panel; scales and quants are those of the first column.
template <typename Weights, int kRows, int kHalves>
inline void columns_by_rows(const Panel& p, const PanelGroup<kRows>* panel, const uint8_t* scales,
                            const uint8_t* quants, size_t columns, float* y, size_t ldy) {
  float32x4_t out[kRows][kHalves];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
    for (int h = 0; h < kHalves; ++h) out[r][h] = p.add ? load_columns(y + r * ldy, columns, 4 * h) : vdupq_n_f32(0.0f);

  const int8_t* q = p.q;
  for (size_t g = 0; g < p.depth; ++g, ++panel) {
    int32x4_t acc[kRows][kHalves];
    for (int r = 0; r < kRows; ++r)
      for (int h = 0; h < kHalves; ++h) acc[r][h] = vld1q_s32(panel->start[r]);
    Weights::multiply(quants, q, p.ldq, acc);
    for (int h = 0; h < kHalves; ++h) {
      const float32x4_t d = load_f16x4(scales + 8 * h);
      for (int r = 0; r < kRows; ++r) out[r][h] = add_group(out[r][h], d, acc[r][h], *panel, r);
      if (!Weights::kHasMin) continue;
      const float32x4_t mn = load_f16x4(scales + 16 + 8 * h);
      for (int r = 0; r < kRows; ++r) out[r][h] = vfmaq_n_f32(out[r][h], mn, panel->scaled_sum[r]);
    }
    q += kGroup;
    scales += Weights::kGroupBytes;
    quants += Weights::kGroupBytes;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
    for (int h = 0; h < kHalves; ++h) store_columns(y + r * ldy, columns, 4 * h, out[r][h]);
}

// All columns for rows `row` .. row + kRows - 1.
template <typename Weights, int kRows>
inline void rows_of_x(size_t n, size_t k, const QuantizedRows& x, size_t row, const uint8_t* weights, float* y,
                      size_t ldy) {
  constexpr int kHalves = kRows > 2 ? 1 : 2;
  const size_t groups = k / kGroup;
  PanelGroup<kRows> panel[kPanelGroups<kRows>];
  for (size_t first = 0; first < groups; first += kPanelGroups<kRows>) {
    const size_t depth = groups - first < kPanelGroups<kRows> ? groups - first : kPanelGroups<kRows>;
    fill_panel(x, groups, row, first, depth, Weights::kZero, panel);
    const Panel p{x.q + row * k + first * kGroup, k, depth, first > 0};
    for (size_t j = 0; j < n; j += 4 * kHalves) {
      const size_t half = j % kTileRows / 4;
      const uint8_t* tile = weights + (j / kTileRows * groups + first) * Weights::kGroupBytes;
      columns_by_rows<Weights, kRows, kHalves>(p, panel, tile + 8 * half, tile + Weights::kScaleBytes + 16 * half,
                                               n - j, y + j, ldy);
    }
  }
}

template <typename Weights>
inline void gemm(size_t m, size_t n, size_t k, const QuantizedRows& x, const uint8_t* weights, float* y, size_t ldy) {
  size_t i = 0;
  for (; i + 8 <= m; i += 8) rows_of_x<Weights, 8>(n, k, x, i, weights, y + i * ldy, ldy);
  for (; i + 4 <= m; i += 4) rows_of_x<Weights, 4>(n, k, x, i, weights, y + i * ldy, ldy);
  for (; i + 2 <= m; i += 2) rows_of_x<Weights, 2>(n, k, x, i, weights, y + i * ldy, ldy);
  for (; i < m; ++i) rows_of_x<Weights, 1>(n, k, x, i, weights, y + i * ldy, ldy);
}

}  // namespace
}  // namespace intattention
