// Portable symmetric quantiser; formula in kernel_table.h and docs/numerics.md section 2.
#include <cmath>
#include <cstring>
#include <limits>

#include "portable/kernels.h"

namespace intattention {
namespace {

// Largest magnitude, or infinity if any value is NaN or Inf.
float absmax(size_t n, const float* x) {
  float max = 0.0f;
  for (size_t i = 0; i < n; ++i) {
    const float magnitude = std::fabs(x[i]);
    if (!(magnitude <= std::numeric_limits<float>::max())) return std::numeric_limits<float>::infinity();
    max = magnitude > max ? magnitude : max;
  }
  return max;
}

// Rounds half to even; |x| stays far below 2^22, where adding 1.5 * 2^23 leaves the integer in the low bits.
int32_t rne(float x) {
  constexpr float kRound = 12582912.0f;
  return static_cast<int32_t>((x + kRound) - kRound);
}

}  // namespace

void quantize_f32s8_portable(size_t n_groups, size_t group, const float* x, int8_t* q, float* scale, int32_t* sum) {
  for (size_t g = 0; g < n_groups; ++g, x += group, q += group) {
    const float max = absmax(group, x);
    const bool finite = max <= std::numeric_limits<float>::max();
    const float s = finite ? max / 127.0f : std::numeric_limits<float>::quiet_NaN();
    int32_t group_sum = 0;
    if (s > 0.0f) {
      for (size_t i = 0; i < group; ++i) {
        float v = x[i] / s;
        v = v < 127.0f ? v : 127.0f;
        v = v > -127.0f ? v : -127.0f;
        const int32_t value = rne(v);
        q[i] = static_cast<int8_t>(value);
        group_sum += value;
      }
    } else {
      std::memset(q, 0, group);
    }
    scale[g] = s;
    if (sum != nullptr) sum[g] = group_sum;
  }
}

}  // namespace intattention
