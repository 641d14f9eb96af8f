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

// Ratios of the scales of keys [0, end) of a block to their maximum, for a prefix that grows.
class BlockRatios {
 public:
  // Starts a block.
  void reset(const float* k_scale, const float* v_scale);
  // Makes ratios valid for keys [0, end); end never shrinks within a block.
  void extend_to(size_t end);

  const int16_t* key_ratio() const { return key_ratio_; }
  const uint16_t* value_ratio() const { return value_ratio_; }
  float k_scale_max() const { return k_scale_max_; }
  float v_scale_max() const { return v_scale_max_; }

 private:
  const float* k_scale_ = nullptr;
  const float* v_scale_ = nullptr;
  size_t end_ = 0;
  float k_scale_max_ = 0.0f, v_scale_max_ = 0.0f;
  int16_t key_ratio_[kKeyBlock] = {};
  uint16_t value_ratio_[kKeyBlock] = {};
};

}  // namespace intattention
