// y (f32) = x (s8, groups of 32) x W^T (packed tiles of 8 columns, groups of 32) with SMMLA: what the 4-bit and the
// 8-bit kernel share. Fewer than 8 rows go to the dotprod kernels: nibbles and s8 are the same bits there.
//
// SMMLA multiplies 2 rows x 8 k by 2 columns x 8 k. Two neighbouring registers of a tile (4 columns x 4 k, 4 columns x
// the next 4 k) zipped by 32-bit lanes are columns 0, 1 x 8 k and columns 2, 3 x 8 k; the activations are zipped by 64
// bits once per panel:
//
//   panel:   x[p][s]  = rows 2p, 2p+1 of k 8s .. 8s+7             p, s = 0..3
//   acc[p][c] += x[p][s] . w[c]                                   c = 0: columns 0, 1; c = 1: columns 2, 3
//   acc[p][c] =  | r0 c0 | r0 c1 | r1 c0 | r1 c1 |                (row pair p, column pair c)
//
// Start, shift and scale (linear_panel.h) lie in memory in that order, d is zipped to c0 c1 c0 c1, and the sums of y
// stay so until they are stored.
//
//   8 rows x 4 columns: 8 s32 and 8 float accumulators, 4 of x, 2 of weights, raw weights, d: 26 registers.
#pragma once

#include "kernel_table.h"
#include "neon_inline.h"

namespace intattention {
namespace {

constexpr int kPairs = 4;  // of rows
constexpr int kSteps = 4;  // of 8 k
constexpr size_t kPanelGroups = 32;

struct PairGroup {
  int8_t x[kPairs][kSteps][16];
  int32_t start[kPairs][2][4];  // once per column pair: a load each is cheaper than a load and a MOV
  float shift[kPairs][4], scale[kPairs][4], scaled_sum[kPairs][4];
};

// Rows row .. row + 7 of x, groups first .. first + depth - 1.
inline void fill_panel(const QuantizedRows& x, size_t k, size_t row, size_t first, size_t depth, int32_t zero,
                       PairGroup* panel) {
  const size_t groups = k / kGroup;
  for (int p = 0; p < kPairs; ++p)
    for (size_t g = 0; g < depth; ++g) {
      const size_t r0 = row + 2 * p, r1 = r0 + 1;
      PairGroup& out = panel[g];
      for (int half = 0; half < 2; ++half) {
        const int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(x.q + r0 * k + (first + g) * kGroup + 16 * half));
        const int64x2_t b = vreinterpretq_s64_s8(vld1q_s8(x.q + r1 * k + (first + g) * kGroup + 16 * half));
        vst1q_s8(out.x[p][2 * half], vreinterpretq_s8_s64(vzip1q_s64(a, b)));
        vst1q_s8(out.x[p][2 * half + 1], vreinterpretq_s8_s64(vzip2q_s64(a, b)));
      }
      for (int lane = 0; lane < 4; ++lane) {
        const size_t at = (lane < 2 ? r0 : r1) * groups + first + g;
        const float sx = x.scale[at];
        out.start[p][0][lane] = out.start[p][1][lane] = kSumStart - zero * x.sum[at];
        out.shift[p][lane] = -kSumStartValue * sx;
        out.scale[p][lane] = sx;
        out.scaled_sum[p][lane] = sx * static_cast<float>(x.sum[at]);
      }
    }
}

// 8 k of 4 columns: step kStep of the activations.
template <int kStep>
inline void multiply8(int8x16_t w01, int8x16_t w23, const PairGroup& panel, int32x4_t (&acc)[kPairs][2]) {
  for (int p = 0; p < kPairs; ++p) {
    const int8x16_t x = vld1q_s8(panel.x[p][kStep]);
    acc[p][0] = vmmlaq_s32(acc[p][0], x, w01);
    acc[p][1] = vmmlaq_s32(acc[p][1], x, w23);
  }
}

// 4 columns as column pairs, the same for both rows.
struct ColumnPairs {
  float32x4_t pair[2];
  explicit ColumnPairs(float32x4_t columns) {
    const float64x2_t both = vreinterpretq_f64_f32(columns);
    pair[0] = vreinterpretq_f32_f64(vzip1q_f64(both, both));
    pair[1] = vreinterpretq_f32_f64(vzip2q_f64(both, both));
  }
};

// 4 columns of a tile for the 8 rows of a panel; scales and quants are those of the first column.
template <typename Weights>
inline void columns_by_rows(const PairGroup* panel, size_t depth, bool add, const uint8_t* scales,
                            const uint8_t* quants, size_t columns, float* y, size_t ldy) {
  float32x4_t out[kPairs][2];
#pragma GCC unroll 4
  for (int p = 0; p < kPairs; ++p) {
    const float32x4_t zero = vdupq_n_f32(0.0f);
    const float64x2_t r0 = vreinterpretq_f64_f32(add ? load_columns(y + 2 * p * ldy, columns, 0) : zero);
    const float64x2_t r1 = vreinterpretq_f64_f32(add ? load_columns(y + (2 * p + 1) * ldy, columns, 0) : zero);
    out[p][0] = vreinterpretq_f32_f64(vzip1q_f64(r0, r1));
    out[p][1] = vreinterpretq_f32_f64(vzip2q_f64(r0, r1));
  }
  for (size_t g = 0; g < depth; ++g, ++panel) {
    int32x4_t acc[kPairs][2];
    for (int p = 0; p < kPairs; ++p)
      for (int c = 0; c < 2; ++c) acc[p][c] = vld1q_s32(panel->start[p][c]);
    Weights::multiply(quants, *panel, acc);
    const ColumnPairs d(load_f16x4(scales));
    for (int p = 0; p < kPairs; ++p)
      for (int c = 0; c < 2; ++c) {
        const float32x4_t sum = vreinterpretq_f32_s32(acc[p][c]);
        out[p][c] =
            vfmaq_f32(out[p][c], d.pair[c], vfmaq_f32(vld1q_f32(panel->shift[p]), sum, vld1q_f32(panel->scale[p])));
      }
    if (Weights::kHasMin) {
      const ColumnPairs mn(load_f16x4(scales + 16));
      for (int p = 0; p < kPairs; ++p)
        for (int c = 0; c < 2; ++c) out[p][c] = vfmaq_f32(out[p][c], mn.pair[c], vld1q_f32(panel->scaled_sum[p]));
    }
    scales += Weights::kGroupBytes;
    quants += Weights::kGroupBytes;
  }
#pragma GCC unroll 4
  for (int p = 0; p < kPairs; ++p) {
    const float64x2_t c0 = vreinterpretq_f64_f32(out[p][0]), c1 = vreinterpretq_f64_f32(out[p][1]);
    store_columns(y + 2 * p * ldy, columns, 0, vreinterpretq_f32_f64(vzip1q_f64(c0, c1)));
    store_columns(y + (2 * p + 1) * ldy, columns, 0, vreinterpretq_f32_f64(vzip2q_f64(c0, c1)));
  }
}

// All columns for rows row .. row + 7.
template <typename Weights>
inline void eight_rows(size_t n, size_t k, const QuantizedRows& x, size_t row, const uint8_t* weights, float* y,
                       size_t ldy) {
  const size_t groups = k / kGroup;
  PairGroup panel[kPanelGroups];
  for (size_t first = 0; first < groups; first += kPanelGroups) {
    const size_t depth = groups - first < kPanelGroups ? groups - first : kPanelGroups;
    fill_panel(x, k, row, first, depth, Weights::kZero, panel);
    for (size_t j = 0; j < n; j += 4) {
      const size_t half = j % kTileRows / 4;
      const uint8_t* tile = weights + (j / kTileRows * groups + first) * Weights::kGroupBytes;
      columns_by_rows<Weights>(panel, depth, first > 0, tile + 8 * half, tile + Weights::kScaleBytes + 16 * half, n - j,
                               y + j, ldy);
    }
  }
}

// Rows in eights; returns how many were done.
template <typename Weights>
inline size_t gemm(size_t m, size_t n, size_t k, const QuantizedRows& x, const uint8_t* weights, float* y, size_t ldy) {
  size_t i = 0;
  for (; i + 8 <= m; i += 8) eight_rows<Weights>(n, k, x, i, weights, y + i * ldy, ldy);
  return i;
}

// x without its first rows.
inline QuantizedRows skip_rows(const QuantizedRows& x, size_t rows, size_t k) {
  const size_t groups = k / kGroup;
  return {x.q + rows * k, x.scale + rows * groups, x.sum + rows * groups};
}

}  // namespace
}  // namespace intattention
