// The oracle: every kernel as a dumb loop over logical (unpacked) matrices, written from
// docs/numerics.md and not from src_core/portable. exp_f32 alone is shared: the page defines it as the
// sequence in exp_f32.h, and test_swiglu_f32.cpp holds it against exp in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "exp_f32.h"
#include "kernel_table.h"

namespace intattention::testing {

// C[i][j] = sum over l of A[i][l] * B[j][l]; b is row-major [n][k].
template <typename A>
int32_t dot_reference(size_t k, const A* a, const int8_t* b) {
  int64_t sum = 0;
  for (size_t l = 0; l < k; ++l) sum += int64_t{a[l]} * b[l];
  return static_cast<int32_t>(sum);
}

// --- index softmax, section 3 and 4 ---

inline int64_t sat16_reference(int64_t x) { return std::min<int64_t>(std::max<int64_t>(x, -32768), 32767); }
inline int64_t mulhrs_reference(int64_t x, int64_t y) { return (x * y + (1 << 14)) >> 15; }

// LUT[i] = max(1, rne(255 * exp(-c*i/63))), the last one 0.
inline int lut_reference(int i) {
  return i == 63 ? 0 : std::max(1, static_cast<int>(std::nearbyint(255.0 * std::exp(-6.6 * i / 63.0))));
}

// The published table: rne(255 * exp(-c*i/31)).
inline int paper_lut_reference(int i) { return static_cast<int>(std::nearbyint(255.0 * std::exp(-6.6 * i / 31.0))); }

struct SoftmaxInput {
  std::vector<int32_t> logits;
  std::vector<int16_t> key_ratio, log_scale;
  std::vector<uint8_t> weight_low, weight_high;
  uint32_t begin = 0, end = 0;
  int narrow = 0, lshift = 0, factor = 0;
  int32_t max = 0;
};
struct SoftmaxOutput {
  int32_t max;
  uint32_t sum;
  std::vector<uint8_t> probs;
};

inline SoftmaxOutput index_softmax_reference(const SoftmaxInput& in) {
  const size_t n = in.logits.size();
  std::vector<int64_t> y(n, 0);
  SoftmaxOutput out{kNoMax, 0, std::vector<uint8_t>(n, 0)};
  for (size_t j = in.begin; j < in.end; ++j) {
    const int64_t half = in.narrow > 0 ? int64_t{1} << (in.narrow - 1) : 0;
    const int64_t narrowed = sat16_reference((int64_t{in.logits[j]} + half) >> in.narrow);
    const int64_t u = mulhrs_reference(narrowed, in.key_ratio[j]);
    const int64_t t = mulhrs_reference(sat16_reference(u * (int64_t{1} << in.lshift)), in.factor);
    y[j] = sat16_reference(t + in.log_scale[j]);
    out.max = std::max<int32_t>(out.max, static_cast<int32_t>(y[j]));
  }
  if (out.max + kDropCounts < in.max) return out;
  for (size_t j = in.begin; j < in.end; ++j) {
    const int64_t index = (std::min<int64_t>(out.max - y[j], 1024) * 63 + 512) >> 10;
    const uint32_t e = static_cast<uint32_t>(lut_reference(static_cast<int>(index)));
    out.sum += e * (in.weight_low[j] + 256u * in.weight_high[j]);
    out.probs[j] = static_cast<uint8_t>(e);
  }
  return out;
}

// --- quantiser and linears, sections 2 and 6 ---

struct Quantized {
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int32_t> sum;
};

inline Quantized quantize_reference(const std::vector<float>& x, size_t group) {
  Quantized out;
  for (size_t start = 0; start < x.size(); start += group) {
    float absmax = 0.0f;
    bool finite = true;
    for (size_t i = 0; i < group; ++i) {
      finite = finite && std::isfinite(x[start + i]);
      absmax = std::max(absmax, std::fabs(x[start + i]));
    }
    const float s = finite ? absmax / 127.0f : std::numeric_limits<float>::quiet_NaN();
    int sum = 0;
    for (size_t i = 0; i < group; ++i) {
      int q = 0;
      if (finite && s != 0.0f) {
        const double rounded = std::nearbyint(static_cast<double>(x[start + i] / s));  // half to even
        q = static_cast<int>(std::min(std::max(rounded, -127.0), 127.0));
      }
      out.q.push_back(static_cast<int8_t>(q));
      sum += q;
    }
    out.scale.push_back(s);
    out.sum.push_back(sum);
  }
  return out;
}

inline float f16_reference(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0 + fraction, exponent - 25);
  return static_cast<float>((bits & 0x8000) != 0 ? -magnitude : magnitude);
}

// x with the last two bits of its mantissa cleared.
inline float without_last_bits_reference(float x) {
  if (x == 0.0f || !std::isfinite(x)) return x;
  int exponent;
  const double mantissa = std::frexp(static_cast<double>(x), &exponent);
  const int bits = std::max(0, std::min(24, exponent + 149));  // fewer below the smallest normal
  return static_cast<float>(std::ldexp(std::trunc(std::ldexp(mantissa, bits - 2)), exponent - bits + 2));
}

// Activations as a linear wants them.
inline Quantized quantize_activations_reference(const std::vector<float>& x) {
  Quantized out = quantize_reference(x, 32);
  for (float& s : out.scale) s = without_last_bits_reference(s);
  return out;
}

// Weights as numbers: q [n][k], d and mn [n][k / 32]; mn is w4g32a's, zero is 8 for w4g32 and else 0.
struct LinearReference {
  size_t n, k;
  int zero;
  std::vector<int> q;
  std::vector<float> d, mn;

  float operator()(const Quantized& x, size_t row, size_t column) const {
    const size_t groups = k / 32;
    float y = 0.0f;
    for (size_t g = 0; g < groups; ++g) {
      int isum = 0;
      for (size_t l = 0; l < 32; ++l) isum += q[column * k + g * 32 + l] * x.q[row * k + g * 32 + l];
      const float sx = x.scale[row * groups + g];
      const int xsum = x.sum[row * groups + g];
      y = std::fma(d[column * groups + g], sx * static_cast<float>(isum - zero * xsum), y);
      if (!mn.empty()) y = std::fma(mn[column * groups + g], sx * static_cast<float>(xsum), y);
    }
    return y;
  }
};

// --- float steps, sections 2 and 6 ---

inline std::vector<float> hadamard_reference(const std::vector<float>& x, size_t size) {
  std::vector<float> y = x;
  for (size_t half = 1; half < size; half *= 2)
    for (size_t i = 0; i < y.size(); ++i)
      if (i / half % 2 == 0) {
        const float a = y[i], b = y[i + half];
        y[i] = a + b;
        y[i + half] = a - b;
      }
  return y;
}

inline std::vector<float> rmsnorm_reference(const std::vector<float>& x, const std::vector<float>& weight, float eps) {
  float lane[8] = {};
  for (size_t i = 0; i < x.size(); ++i) lane[i % 8] = lane[i % 8] + x[i] * x[i];
  const float sum = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  const float factor = 1.0f / std::sqrt(sum / static_cast<float>(x.size()) + eps);
  std::vector<float> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = (x[i] * factor) * weight[i];
  return y;
}

inline std::vector<float> rope_reference(const std::vector<float>& x, const std::vector<float>& cos,
                                         const std::vector<float>& sin) {
  const size_t half = x.size() / 2;
  std::vector<float> y(x.size());
  for (size_t i = 0; i < half; ++i) {
    y[i] = x[i] * cos[i] - x[i + half] * sin[i];
    y[i + half] = x[i + half] * cos[i] + x[i] * sin[i];
  }
  return y;
}

inline float swiglu_reference(float gate, float up) { return (gate / (1.0f + exp_f32(-gate))) * up; }

}  // namespace intattention::testing
