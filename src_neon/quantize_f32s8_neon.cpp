// Symmetric int8 quantisation of groups of floats: s = absmax / 127, q = clamp(rne(x / s), -127, 127).
//
//   pass 1   FMAX of |x| over the group. FMAX hands a NaN on and keeps an Inf, so the maximum is finite
//            only if every element is.
//   pass 2   8 at a time: FDIV by s, FCVTNS (round half to even), SQXTN to s16, SQXTN to s8, SMAX -127.
//            s above the smallest normal keeps |x / s| within 127; for denormal s it can pass 127 and
//            the narrowing saturates, which is the clamp.
//
// Bound on Cortex-A76: FDIV.4S, 7 cycles per 4 elements. Activations are quantised once per token and
// linear (hidden size / 4 * 7 = 1000 cycles for 576), far below the linear itself.
//
// Rejected: multiplying by 1 / s. It differs from x / s in about one element of 10^5, and the oracle, the
// model file and every ISA would have to share that error.
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {
namespace {

inline float absmax_of_group(size_t group, const float* x) {
  float32x4_t max0 = vdupq_n_f32(0.0f), max1 = max0;
  for (size_t i = 0; i < group; i += 8) {
    max0 = vmaxq_f32(max0, vabsq_f32(vld1q_f32(x + i)));
    max1 = vmaxq_f32(max1, vabsq_f32(vld1q_f32(x + i + 4)));
  }
  return vmaxvq_f32(vmaxq_f32(max0, max1));
}

// Quantises one group by s and returns the sum of q.
inline int32_t quantize_group(size_t group, const float* x, float s, int8_t* q) {
  const float32x4_t divisor = vdupq_n_f32(s);
  int32x4_t sum = vdupq_n_s32(0);
  for (size_t i = 0; i < group; i += 8) {
    const int32x4_t low = vcvtnq_s32_f32(vdivq_f32(vld1q_f32(x + i), divisor));
    const int32x4_t high = vcvtnq_s32_f32(vdivq_f32(vld1q_f32(x + i + 4), divisor));
    const int16x8_t wide = vcombine_s16(vqmovn_s32(low), vqmovn_s32(high));
    const int8x8_t narrow = vmax_s8(vqmovn_s16(wide), vdup_n_s8(-127));
    vst1_s8(q + i, narrow);
    sum = vpadalq_s16(sum, vmovl_s8(narrow));
  }
  return vaddvq_s32(sum);
}

}  // namespace

void quantize_f32s8_neon(size_t n_groups, size_t group, const float* x, int8_t* q, float* scale, int32_t* sum) {
  constexpr float kLargest = 3.40282347e+38f;
  for (size_t g = 0; g < n_groups; ++g, x += group, q += group) {
    const float absmax = absmax_of_group(group, x);
    float s = absmax / 127.0f;
    int32_t group_sum = 0;
    if (!(absmax <= kLargest)) {
      s = __builtin_nanf("");
    } else if (s > 0.0f) {
      group_sum = quantize_group(group, x, s, q);
    }
    if (!(s > 0.0f)) std::memset(q, 0, group);
    scale[g] = s;
    if (sum != nullptr) sum[g] = group_sum;
  }
}

}  // namespace intattention
