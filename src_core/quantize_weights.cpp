#include "quantize_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "error.h"

namespace intattention {
namespace {

constexpr float kF16Max = 65504.0f;

// Steps that the range is divided into. Fewer than its levels: the range is covered with room to spare; more: the ends
// are clipped.
constexpr float kRangeSteps[] = {13.8f, 14.6f, 15.4f, 16.4f, 17.6f};
constexpr float kPeakSteps[] = {6.7f, 7.4f, 8.2f, 9.1f, 10.2f};  // from 0 to the peak
constexpr int kRefits = 8;                                       // stops at the first that gains nothing

// One group of weights and how much each one's error counts.
struct Group {
  float w[kGroup], weight[kGroup];
  float total;  // of the weights
};

// w' = scale * q + min, q in low .. low + 15; scale and min are f16 values.
struct Fit {
  float scale = 0.0f, min = 0.0f;
  float q[kGroup] = {};
  float error = std::numeric_limits<float>::infinity();
};

float through_f16(float x) { return f16_to_f32(f32_to_f16(std::clamp(x, -kF16Max, kF16Max))); }

void round_to_levels(const Group& group, float scale, float min, int32_t low, float* q) {
  float inverse = 1.0f / scale;
  if (scale == 0.0f || !std::isfinite(inverse)) inverse = 0.0f;
  // x + 1.5 * 2^23 is an integer in the last bits, and the bits of floats have the order of the floats: clamping them
  // as integers needs no comparison of floats, which GCC does not turn into vectors.
  const int32_t first = kSumStart + low, last = first + 15;
  float x[kGroup];
  int32_t bits[kGroup];
  for (size_t i = 0; i < kGroup; ++i) x[i] = (group.w[i] - min) * inverse + kSumStartValue;
  std::memcpy(bits, x, sizeof bits);
  for (size_t i = 0; i < kGroup; ++i) bits[i] = std::min(std::max(bits[i], first), last);
  std::memcpy(x, bits, sizeof bits);
  for (size_t i = 0; i < kGroup; ++i) q[i] = x[i] - kSumStartValue;
}

// Adds halves on halves, in loops that compilers turn into vectors. Overwrites the terms.
float sum_of(float (&term)[kGroup]) {
  for (size_t i = 0; i < 16; ++i) term[i] += term[i + 16];
  for (size_t i = 0; i < 8; ++i) term[i] += term[i + 8];
  for (size_t i = 0; i < 4; ++i) term[i] += term[i + 4];
  return (term[0] + term[2]) + (term[1] + term[3]);
}

float weighted_sum(const float* weight, const float* x) {
  float term[kGroup];
  for (size_t i = 0; i < kGroup; ++i) term[i] = weight[i] * x[i];
  return sum_of(term);
}
float weighted_sum(const float* weight, const float* x, const float* y) {
  float term[kGroup];
  for (size_t i = 0; i < kGroup; ++i) term[i] = weight[i] * x[i] * y[i];
  return sum_of(term);
}

// Scale and minimum as they are stored, the integers that go with them, and their error.
Fit stored_fit(const Group& group, float scale, float min, int32_t low) {
  Fit fit;
  fit.scale = through_f16(scale);
  fit.min = through_f16(min);
  round_to_levels(group, fit.scale, fit.min, low, fit.q);
  float difference[kGroup];
  for (size_t i = 0; i < kGroup; ++i) difference[i] = group.w[i] - (fit.scale * fit.q[i] + fit.min);
  fit.error = weighted_sum(group.weight, difference, difference);
  return fit;
}

// Least squares for q: scale and minimum, or the scale alone. False if q does not determine them.
bool refit_range(const Group& group, const float* q, float* scale, float* min) {
  const float n = group.total;
  const float sq = weighted_sum(group.weight, q), sw = weighted_sum(group.weight, group.w);
  const float sqq = weighted_sum(group.weight, q, q), sqw = weighted_sum(group.weight, q, group.w);
  const float determinant = n * sqq - sq * sq;
  if (!(determinant > 0.0f)) return false;
  const float fitted = (n * sqw - sq * sw) / determinant;
  if (!(fitted > 0.0f)) return false;
  *scale = fitted;
  *min = (sw - fitted * sq) / n;
  return true;
}
bool refit_scale(const Group& group, const float* q, float* scale) {
  const float sqq = weighted_sum(group.weight, q, q);
  if (!(sqq > 0.0f)) return false;
  *scale = weighted_sum(group.weight, q, group.w) / sqq;
  return true;
}

bool keep_better(const Fit& fit, Fit* best) {
  if (!(fit.error < best->error)) return false;
  *best = fit;
  return true;
}

Fit search_w4g32a(const Group& group) {
  const auto [low, high] = std::minmax_element(group.w, group.w + kGroup);
  const float middle = (*low + *high) / 2, span = *high - *low;
  Fit best = stored_fit(group, span / 15, *low, 0);
  for (float steps : kRangeSteps) {
    float scale = span / steps, min = middle - scale * 7.5f, q[kGroup];
    round_to_levels(group, scale, min, 0, q);
    refit_range(group, q, &scale, &min);
    keep_better(stored_fit(group, scale, min, 0), &best);
  }
  for (int i = 0; i < kRefits; ++i) {
    float scale, min;
    if (!refit_range(group, best.q, &scale, &min) || !keep_better(stored_fit(group, scale, min, 0), &best)) break;
  }
  return best;
}

// The peak's sign decides the scale's: -8 reaches further than 7.
Fit search_w4g32(const Group& group) {
  const float peak =
      *std::max_element(group.w, group.w + kGroup, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  Fit best = stored_fit(group, peak / -8, 0.0f, -8);
  for (float steps : kPeakSteps)
    for (float sign : {-1.0f, 1.0f}) {
      float scale = peak / (sign * steps), q[kGroup];
      round_to_levels(group, scale, 0.0f, -8, q);
      refit_scale(group, q, &scale);
      keep_better(stored_fit(group, scale, 0.0f, -8), &best);
    }
  for (int i = 0; i < kRefits; ++i) {
    float scale;
    if (!refit_scale(group, best.q, &scale) || !keep_better(stored_fit(group, scale, 0.0f, -8), &best)) break;
  }
  return best;
}

void store_nibbles(const Fit& fit, float low, uint8_t* q) {
  for (size_t i = 0; i < kGroup / 2; ++i) {
    const uint32_t first = static_cast<uint32_t>(fit.q[i] - low);
    const uint32_t second = static_cast<uint32_t>(fit.q[i + kGroup / 2] - low);
    q[i] = static_cast<uint8_t>(first | second << 4);
  }
}

uint16_t quantize_w8_group(const float* w, float absmax, uint8_t* q) {
  const uint16_t scale = f32_to_f16(absmax / 127.0f);
  const float d = f16_to_f32(scale);
  float inverse = 1.0f / d;
  if (d == 0.0f || !std::isfinite(inverse)) inverse = 0.0f;
  for (size_t i = 0; i < kGroup; ++i) {
    const float x = std::clamp(w[i] * inverse, -127.0f, 127.0f);
    q[i] = static_cast<uint8_t>(static_cast<int8_t>((x + kSumStartValue) - kSumStartValue));
  }
  return scale;
}

float checked_absmax(const float* w, float limit) {
  float absmax = 0.0f;
  for (size_t i = 0; i < kGroup; ++i) {
    if (!std::isfinite(w[i])) throw InvalidArgument("a weight is NaN or Inf");
    absmax = std::max(absmax, std::fabs(w[i]));
  }
  if (absmax > limit) throw InvalidArgument(message("a weight of ", absmax, " is too large, the limit is ", limit));
  return absmax;
}

void set_weights(const float* importance, Group* group) {
  const bool any = importance != nullptr && *std::max_element(importance, importance + kGroup) > 0.0f;
  float square = 0.0f;
  for (float w : group->w) square += w * w;
  const float inverse = square > 0.0f ? static_cast<float>(kGroup) / square : 0.0f;
  for (size_t i = 0; i < kGroup; ++i)
    group->weight[i] = (any ? importance[i] : 1.0f) * std::sqrt(1.0f + group->w[i] * group->w[i] * inverse);
  float term[kGroup];
  std::copy(group->weight, group->weight + kGroup, term);
  group->total = sum_of(term);
}

}  // namespace

void quantize_weights(WeightFormat format, size_t rows, size_t columns, const float* w, const float* importance,
                      const QuantizedWeights& out) {
  const size_t groups = columns / kGroup;
  const bool w8 = format == WeightFormat::kW8G32, with_min = format == WeightFormat::kW4G32A;
  const float limit = w8 ? 127 * kF16Max : kF16Max;
  Group group;
  for (size_t i = 0; i < rows * groups; ++i, w += kGroup) {
    const float absmax = checked_absmax(w, limit);
    if (w8) {
      out.scale[i] = quantize_w8_group(w, absmax, out.q + i * kGroup);
      continue;
    }
    std::memcpy(group.w, w, sizeof group.w);
    set_weights(importance == nullptr ? nullptr : importance + i % groups * kGroup, &group);
    const Fit best = with_min ? search_w4g32a(group) : search_w4g32(group);
    out.scale[i] = f32_to_f16(best.scale);
    if (with_min) out.min[i] = f32_to_f16(best.min);
    store_nibbles(best, with_min ? 0.0f : -8.0f, out.q + i * (kGroup / 2));
  }
}

uint16_t f32_to_f16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000;
  const float magnitude = std::fabs(x);
  if (!(magnitude < 65520.0f)) return static_cast<uint16_t>(sign | (magnitude > 0.0f ? 0x7c00 : 0x7e00));
  if (magnitude < 6.103515625e-05f) {  // below 2^-14: a multiple of 2^-24, which adding 0.5 rounds to
    const float shifted = magnitude + 0.5f;
    std::memcpy(&bits, &shifted, sizeof bits);
    return static_cast<uint16_t>(sign | (bits - 0x3f000000));
  }
  std::memcpy(&bits, &magnitude, sizeof bits);
  bits += 0xfff + (bits >> 13 & 1);  // half to even at bit 13
  return static_cast<uint16_t>(sign | ((bits >> 13) - (112u << 10)));
}

}  // namespace intattention
