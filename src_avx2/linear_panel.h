// What the linears need of the activations beside their int8: made once per block of R rows and of groups, on the
// kernel's stack, and used for every column. No ISA beyond the including file's; everything is `static inline`.
//
// A s32 sum starts at the bits of 1.5 * 2^23 (kSumStart), less what stands for a weight's zero, and is then a float,
// 1.5 * 2^23 + isum:
//
//   t    (float(sum) - 1.5 * 2^23) * sx   the difference is exact
//   out  fma(d, t, out)                   w4g32a: then fma(mn, scaled_sum, out)
//
// So the start costs nothing where it replaces zeros, and no conversion competes with the products for a port.
//
// Rejected: one fma for t with -1.5 * 2^23 * sx from memory, as ARM has it. It is one operation less but one load more,
// and loads (a broadcast for every product) are as scarce: the same speed for many rows, 2 to 5 % slower for one.
//
// Weights that few rows share come from memory at its own speed, and the hardware's prefetchers lose the stream where a
// tile ends. So a tile asks for the one after it, a line at a time. With 2 threads on a Zen 5, w4g32, share of what a
// loop of plain loads reads in the same run (weights in huge pages):
//
//   k, n              without   next tiles to L2   to L1   4 KB ahead, to L1   to L2
//   3584, 37888       80 %      93 %               71 %    75 %                89 %
//   18944, 3584       67 %      90 %               65 %    75 %                89 %
//   1536, 49152       55 %      96 %               73 %    60 %                68 %
//
// A prefetch of bytes behind the weights asks for nothing.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernel_table.h"

namespace intattention {

constexpr size_t kPrefetchRows = 4;  // up to here the weights' way from memory is what takes the time

template <size_t N>
static inline void prefetch_l2(const uint8_t* p) {
  for (size_t at = 0; at < N; at += 64) _mm_prefetch(reinterpret_cast<const char*>(p + at), _MM_HINT_T1);
}

template <size_t R>
struct LinearPanel {
  static constexpr size_t kGroups = 512 / R;  // 8 KB for every height

  int32_t start[R][kGroups];
  float scale[R][kGroups];
  float scaled_sum[R][kGroups];  // sx * float(xsum)
};

// Rows `row` .. row + R - 1 of x, groups first .. first + depth - 1; weights of value `zero` stand for 0.
template <size_t R>
static inline void fill_panel(const QuantizedRows& x, size_t groups, size_t row, size_t first, size_t depth,
                              int32_t zero, LinearPanel<R>* panel) {
  for (size_t i = 0; i < R; ++i) {
    const float* scale = x.scale + (row + i) * groups + first;
    const int32_t* sum = x.sum + (row + i) * groups + first;
    for (size_t g = 0; g < depth; ++g) {
      panel->start[i][g] = kSumStart - zero * sum[g];
      panel->scale[i][g] = scale[g];
      panel->scaled_sum[i][g] = scale[g] * static_cast<float>(sum[g]);
    }
  }
}

// A block of the problem: rows and groups that every column shares.
struct LinearBlock {
  const int8_t* q;  // first row, first group
  size_t ldq, depth;
  bool add;  // continues the sums in y
};

}  // namespace intattention
