// What the dot-product linears need of the activations beside their int8: made once per block of rows and
// groups, on the kernel's stack, and used for every column. Armv8-A baseline, `static inline` only.
//
// A s32 sum starts at the bits of 1.5 * 2^23 (kSumStart) and is then a float, 1.5 * 2^23 + isum, without SCVTF (2
// cycles on V0 alone); one FMLA takes it off again and multiplies by sx:
//
//   start[r]   4 x (kSumStart - zero * xsum)       SDOT accumulates onto it; zero = 8 for w4g32
//   shift[r]   4 x (-1.5 * 2^23 * sx)              exact
//   t          shift[r] + float(acc) * sx          one rounding: sx * float(isum)
//   out        out + d * t                         (w4g32a: then out + mn * scaled_sum[r])
//
// Start and shift lie in memory four times over because LDR of 16 bytes takes a load pipe only, where LD1R,
// DUP and MOV take half a cycle of the pipes that SDOT wants.
#pragma once

#include "kernel_table.h"
#include "neon_inline.h"

namespace intattention {

template <int kRows>
struct PanelGroup {
  int32_t start[kRows][4];
  float shift[kRows][4];
  float scale[kRows];
  float scaled_sum[kRows];  // sx * float(xsum)
};

// Groups of a panel: 20 KB for every height.
template <int kRows>
constexpr size_t kPanelGroups = 512 / kRows;

// Rows `row` .. row + kRows - 1 of x, groups first .. first + depth - 1.
template <int kRows>
static inline void fill_panel(const QuantizedRows& x, size_t groups, size_t row, size_t first, size_t depth,
                              int32_t zero, PanelGroup<kRows>* panel) {
  for (int r = 0; r < kRows; ++r) {
    const float* scale = x.scale + (row + r) * groups + first;
    const int32_t* sum = x.sum + (row + r) * groups + first;
    for (size_t g = 0; g < depth; ++g) {
      const int32_t xsum = sum[g];
      const float sx = scale[g];
      vst1q_s32(panel[g].start[r], vdupq_n_s32(kSumStart - zero * xsum));
      vst1q_f32(panel[g].shift[r], vdupq_n_f32(-kSumStartValue * sx));
      panel[g].scale[r] = sx;
      panel[g].scaled_sum[r] = sx * static_cast<float>(xsum);
    }
  }
}

// out + d * (sx * float(isum)) of row r.
template <int kRows>
static inline float32x4_t add_group(float32x4_t out, float32x4_t d, int32x4_t acc, const PanelGroup<kRows>& panel,
                                    int r) {
  const float32x4_t shift = vld1q_f32(panel.shift[r]);
  return vfmaq_f32(out, d, vfmaq_n_f32(shift, vreinterpretq_f32_s32(acc), panel.scale[r]));
}

}  // namespace intattention
