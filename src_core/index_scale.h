// The fixed-point constants of the index softmax: from float scales to Q15 ratios, shift and factor
// (docs/numerics.md section 3).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel_table.h"

namespace intattention {

// Counts per nat is 1024 / c with c = 6.6.
constexpr double kCountsPerNat = 1024.0 / 6.6;
constexpr float kNatsPerCount = static_cast<float>(6.6 / 1024.0);

// Smallest n with 127 * |q8|_1 <= 32767 * 2^n: the row's logits, shifted by n, fit 16 bits.
int narrow_shift(size_t head_dim, const int8_t* q8);

struct RowFactor {
  int16_t factor;
  int32_t lshift;
};
// From F = ((s_q * S_k) * scale) * (2^n * (1024/6.6) * (32768/32767)).
RowFactor row_factor(float q_scale, float k_scale_max, float scale, int narrow);

// ln of a scale of V in counts; scales below 1e-25 count as 1e-25, so that row sums stay within float32.
int16_t log_scale(float v_scale);

// Counts (a factor of 16) that a log scale may lie below the block's largest. Smaller ones are raised to that, so that
// E' of a key with a tiny V does not vanish from the row sum; attention() takes the surplus off the output.
constexpr int kLogScaleContrast = 430;

// The largest weight in the row sum, that of the smallest scale of V in the block.
constexpr int kSumWeightOne = 32767;

// What the softmax needs of keys [0, end) of a block, for a prefix that grows. A block that is full never changes
// again; the KV cache keeps its scales.
struct BlockScales {
  size_t end = 0;
  float k_scale_max = 0.0f;
  float sum_unit = 0.0f;  // makes row sums comparable between blocks: exp of minus the smallest log scale
  int32_t log_max = kNoMax, log_min = -kNoMax;
  int16_t key_ratio[kKeyBlock] = {}, log_scale[kKeyBlock] = {};
  uint8_t weight_low[kKeyBlock] = {}, weight_high[kKeyBlock] = {};

  void reset();
  // Makes the scales those of keys [0, new_end); new_end below `end` changes nothing.
  void extend_to(size_t new_end, const float* k_scale, const int16_t* v_log_scale);
  // Log scales of V below this were raised to it.
  int32_t lowest() const { return log_max - kLogScaleContrast; }
  IndexSoftmaxKeys keys() const { return {key_ratio, log_scale, weight_low, weight_high}; }
};

}  // namespace intattention
