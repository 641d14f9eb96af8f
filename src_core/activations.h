// A matrix of activations quantised for linears: s8 in groups of 32 with scales (QuantizedRows).
#pragma once

#include <algorithm>
#include <cmath>

#include "aligned_buffer.h"
#include "kernel_table.h"

namespace intattention {

class Activations {
 public:
  Activations() = default;
  // Room for max_rows rows of k values; k a multiple of 32.
  Activations(size_t max_rows, size_t k)
      : k_(k),
        q_(max_rows * k),
        scale_(max_rows * (k / kGroup) * sizeof(float)),
        scaled_sum_(max_rows * (k / kGroup) * sizeof(float)) {}

  // False if x holds NaN or Inf; the row then gives NaN wherever it is used.
  bool quantize_row(const KernelTable& table, size_t row, const float* x) {
    const size_t groups = k_ / kGroup;
    float* scale = scale_.as<float>() + row * groups;
    table.quantize_f32s8(groups, kGroup, x, q_.as<int8_t>() + row * k_, scale, scaled_sum_.as<float>() + row * groups);
    return std::all_of(scale, scale + groups, [](float s) { return std::isfinite(s); });
  }

  QuantizedRows rows(size_t first = 0) const {
    const size_t groups = k_ / kGroup;
    return {q_.as<int8_t>() + first * k_, scale_.as<float>() + first * groups,
            scaled_sum_.as<float>() + first * groups};
  }
  size_t k() const { return k_; }
  size_t nbytes() const { return q_.size() + scale_.size() + scaled_sum_.size(); }

 private:
  size_t k_ = 0;
  AlignedBuffer q_, scale_, scaled_sum_;
};

}  // namespace intattention
