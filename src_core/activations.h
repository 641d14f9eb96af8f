// A matrix of activations quantised for linears: s8 in groups of 32 with scales (QuantizedRows).
#pragma once

#include <cstring>
#include <limits>

#include "aligned_buffer.h"
#include "kernel_table.h"

namespace intattention {

// Largest scale of a group: 1.5 * 2^23 times it (kSumStart) and its products with any weight stay finite.
constexpr float kMaxScale = 0x1p100f;

// x with the last two bits of its mantissa cleared, so that 3 * 2^22 * x is exact.
inline float without_last_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits &= ~3u;
  std::memcpy(&x, &bits, sizeof bits);
  return x;
}

class Activations {
 public:
  Activations() = default;
  // Room for max_rows rows of k values; k a multiple of 32.
  Activations(size_t max_rows, size_t k)
      : k_(k),
        q_(max_rows * k),
        scale_(max_rows * (k / kGroup) * sizeof(float)),
        sum_(max_rows * (k / kGroup) * sizeof(int32_t)) {}

  // False if x holds NaN, Inf or a magnitude beyond 127 * kMaxScale; the row then gives NaN wherever it is used.
  bool quantize_row(const KernelTable& table, size_t row, const float* x) {
    const size_t groups = k_ / kGroup;
    float* scale = scale_.as<float>() + row * groups;
    table.quantize_f32s8(groups, kGroup, x, q_.as<int8_t>() + row * k_, scale, sum_.as<int32_t>() + row * groups);
    bool usable = true;
    for (size_t g = 0; g < groups; ++g) {
      const bool in_range = scale[g] <= kMaxScale;  // false for NaN
      scale[g] = in_range ? without_last_bits(scale[g]) : std::numeric_limits<float>::quiet_NaN();
      usable = usable && in_range;
    }
    return usable;
  }

  QuantizedRows rows(size_t first = 0) const {
    const size_t groups = k_ / kGroup;
    return {q_.as<int8_t>() + first * k_, scale_.as<float>() + first * groups, sum_.as<int32_t>() + first * groups};
  }
  size_t k() const { return k_; }
  size_t nbytes() const { return q_.size() + scale_.size() + sum_.size(); }

 private:
  size_t k_ = 0;
  AlignedBuffer q_, scale_, sum_;
};

}  // namespace intattention
