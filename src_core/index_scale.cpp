#include "index_scale.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "exp_f32.h"

namespace intattention {
namespace {

// Below this a block's scales count as zero: 32767 / S would leave the float range.
constexpr float kTinyScale = 1e-30f;

// Half to even for 0 <= x < 2^22: adding 1.5 * 2^23 leaves the integer in the low bits.
int32_t rne(float x) {
  constexpr float kRound = 12582912.0f;
  return static_cast<int32_t>((x + kRound) - kRound);
}

// floor(log2(x)) of a normal positive x
int32_t exponent(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<int32_t>(bits >> 23) - 127;
}

// ratio[j] = rne(scale[j] * (32767 / max)) for j in [begin, end)
void fill_key_ratios(const float* scale, float max, size_t begin, size_t end, int16_t* ratio) {
  constexpr float kOne = 32767.0f;
  const float inverse = max < kTinyScale ? 0.0f : kOne / max;
  for (size_t j = begin; j < end; ++j) {
    const float value = scale[j] * inverse;
    ratio[j] = static_cast<int16_t>(rne(value < kOne ? value : kOne));
  }
}

// [i] = rne(32767 * exp(-i counts)): what E' of a key counts in the row sum whose scale of V is i counts above the
// smallest.
struct SumWeights {
  uint16_t value[kLogScaleContrast + 1];

  SumWeights() {
    for (int i = 0; i <= kLogScaleContrast; ++i)
      value[i] = static_cast<uint16_t>(std::nearbyint(kSumWeightOne * std::exp(-i / kCountsPerNat)));
  }
};

}  // namespace

int narrow_shift(size_t head_dim, const int8_t* q8) {
  int32_t sum = 0;  // at most 1024 * 127
  for (size_t i = 0; i < head_dim; ++i) sum += q8[i] < 0 ? -q8[i] : q8[i];
  int n = 0;
  while (127 * sum > 32767 << n) ++n;
  return n;
}

RowFactor row_factor(float q_scale, float k_scale_max, float scale, int narrow) {
  const double per_unit = static_cast<double>(1 << narrow) * kCountsPerNat * (32768.0 / 32767.0);
  float f = ((q_scale * k_scale_max) * scale) * static_cast<float>(per_unit);
  int32_t lshift = 0;
  if (f >= 1.0f) {
    lshift = std::min(exponent(f) + 1, 15);
    f *= 1.0f / static_cast<float>(1 << lshift);
  }
  const float mantissa = f < 1.0f ? f * 32768.0f : 32767.0f;
  return {static_cast<int16_t>(std::min(rne(mantissa), 32767)), lshift};
}

int16_t log_scale(float v_scale) {
  const double floored = std::max(static_cast<double>(v_scale), 1e-25);
  return static_cast<int16_t>(std::nearbyint(std::log(floored) * kCountsPerNat));
}

void BlockScales::reset() {
  end = 0;
  k_scale_max = 0.0f;
  log_max = kNoMax;
  log_min = -kNoMax;
}

void BlockScales::extend_to(size_t new_end, const float* k_scale, const int16_t* v_log_scale) {
  if (new_end <= end) return;
  const float k_before = k_scale_max;
  const int32_t max_before = log_max, min_before = log_min;
  for (size_t j = end; j < new_end; ++j) {
    k_scale_max = std::max(k_scale_max, k_scale[j]);
    log_max = std::max<int32_t>(log_max, v_log_scale[j]);
    log_min = std::min<int32_t>(log_min, v_log_scale[j]);
  }
  // a new extreme changes the whole prefix
  fill_key_ratios(k_scale, k_scale_max, k_scale_max > k_before ? 0 : end, new_end, key_ratio);
  static const SumWeights weights;
  const int32_t bound = lowest(), smallest = std::max(log_min, bound);
  for (size_t j = log_max > max_before || log_min < min_before ? 0 : end; j < new_end; ++j) {
    const int32_t raised = std::max<int32_t>(v_log_scale[j], bound);
    log_scale[j] = static_cast<int16_t>(raised);
    const uint16_t weight = weights.value[raised - smallest];
    weight_low[j] = static_cast<uint8_t>(weight & 0xff);
    weight_high[j] = static_cast<uint8_t>(weight >> 8);
  }
  sum_unit = exp_f32(static_cast<float>(-smallest) * kNatsPerCount);
  end = new_end;
}

}  // namespace intattention
