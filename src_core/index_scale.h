// The fixed-point constants of the index softmax: from float scales to Q15 ratios, shift and factor
// (docs/numerics.md section 3).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel_table.h"

namespace intattention {

// Counts per nat is 1024 / c with c = 6.6.
constexpr double kCountsPerNat = 1024.0 / 6.6;

// Smallest n with 127 * |q8|_1 <= 32767 * 2^n: the row's logits, shifted by n, fit 16 bits.
int narrow_shift(size_t head_dim, const int8_t* q8);

struct RowFactor {
  int16_t factor;
  int32_t lshift;
};
// From F = ((s_q * S_k) * scale) * (2^n * (1024/6.6) * (32768/32767)).
RowFactor row_factor(float q_scale, float k_scale_max, float scale, int narrow);

// Ratios of the scales of keys [0, end) of a block to their maximum, for a prefix that grows. A block that is
// full never changes again; the KV cache keeps its ratios.
struct BlockRatios {
  size_t end = 0;
  float k_scale_max = 0.0f, v_scale_max = 0.0f;
  int16_t key_ratio[kKeyBlock] = {};
  uint16_t value_ratio[kKeyBlock] = {};

  void reset() {
    end = 0;
    k_scale_max = v_scale_max = 0.0f;
  }
  // Makes the ratios those of keys [0, new_end); new_end below `end` changes nothing.
  void extend_to(size_t new_end, const float* k_scale, const float* v_scale);
};

}  // namespace intattention
