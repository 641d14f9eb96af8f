#include "index_scale.h"

#include <algorithm>

namespace intattention {
namespace {

// Below this a block's scales count as zero: 32767 / S would leave the float range.
constexpr float kTinyScale = 1e-30f;

// Half to even for 0 <= x < 2^22: adding 1.5 * 2^23 leaves the integer in the low bits.
int32_t rne(float x) {
  constexpr float kRound = 12582912.0f;
  return static_cast<int32_t>((x + kRound) - kRound);
}

// ratio[j] = rne(scale[j] * (one / max)) for j in [begin, end)
template <typename T>
void fill_ratios(const float* scale, float max, float one, size_t begin, size_t end, T* ratio) {
  const float inverse = max < kTinyScale ? 0.0f : one / max;
  for (size_t j = begin; j < end; ++j) {
    const float value = scale[j] * inverse;
    ratio[j] = static_cast<T>(rne(value < one ? value : one));
  }
}

// Extends (max, ratio) from the prefix `begin` to `end`; a new maximum changes the whole prefix.
template <typename T>
void extend(const float* scale, float one, size_t begin, size_t end, float* max, T* ratio) {
  float largest = *max;
  for (size_t j = begin; j < end; ++j) largest = scale[j] > largest ? scale[j] : largest;
  fill_ratios(scale, largest, one, largest > *max ? 0 : begin, end, ratio);
  *max = largest;
}

}  // namespace

int narrow_shift(size_t head_dim, const int8_t* q8) {
  int64_t sum = 0;
  for (size_t i = 0; i < head_dim; ++i) sum += q8[i] < 0 ? -q8[i] : q8[i];
  int n = 0;
  while (127 * sum > int64_t{32767} << n) ++n;
  return n;
}

RowFactor row_factor(float q_scale, float k_scale_max, float scale, int narrow) {
  const double per_unit = static_cast<double>(1 << narrow) * kCountsPerNat * (32768.0 / 32767.0);
  float f = ((q_scale * k_scale_max) * scale) * static_cast<float>(per_unit);
  int32_t lshift = 0;
  while (f >= 1.0f && lshift < 15) {
    f = f * 0.5f;
    ++lshift;
  }
  const float mantissa = f < 1.0f ? f * 32768.0f : 32767.0f;
  return {static_cast<int16_t>(std::min(rne(mantissa), 32767)), lshift};
}

void BlockRatios::extend_to(size_t new_end, const float* k_scale, const float* v_scale) {
  if (new_end <= end) return;
  extend(k_scale, 32767.0f, end, new_end, &k_scale_max, key_ratio);
  extend(v_scale, 256.0f, end, new_end, &v_scale_max, value_ratio);
  end = new_end;
}

}  // namespace intattention
