// What the two float softmax kernels share: the walk over the visible keys of a row and the row maximum. Everything
// is `static inline` and Armv8-A baseline (neon_inline.h says why).
#pragma once

#include "kernel_table.h"
#include "neon_inline.h"

namespace intattention {

// Calls step(x, j) with the logits of keys j .. j+15 for each group of 16 that holds a visible key. In the groups at
// the ends, invisible keys read as kNoLogit.
template <typename Step>
static inline void visible_groups(const float* logits, size_t begin, size_t end, Step step) {
  if (begin >= end) return;
  for (size_t j = begin & ~size_t{15}; j < end; j += 16) {
    if (j >= begin && j + 16 <= end) {
      step(logits + j, j);
      continue;
    }
    float edge[16];
    for (size_t i = 0; i < 16; ++i) edge[i] = j + i >= begin && j + i < end ? logits[j + i] : kNoLogit;
    step(static_cast<const float*>(edge), j);
  }
}

// The larger of `max` and the visible logits.
static inline float visible_max(const float* logits, size_t begin, size_t end, float max) {
  float32x4_t lanes[2] = {vdupq_n_f32(max), vdupq_n_f32(max)};
  visible_groups(logits, begin, end, [&](const float* x, size_t) {
    lanes[0] = vmaxq_f32(lanes[0], vmaxq_f32(vld1q_f32(x), vld1q_f32(x + 4)));
    lanes[1] = vmaxq_f32(lanes[1], vmaxq_f32(vld1q_f32(x + 8), vld1q_f32(x + 12)));
  });
  return vmaxvq_f32(vmaxq_f32(lanes[0], lanes[1]));
}

// Calls clear(j) for the groups of 16 keys without a visible one.
template <typename Clear>
static inline void invisible_groups(size_t n, size_t begin, size_t end, Clear clear) {
  for (size_t j = 0; j < n; j += 16)
    if (begin >= end || j + 16 <= begin || j >= end) clear(j);
}

}  // namespace intattention
