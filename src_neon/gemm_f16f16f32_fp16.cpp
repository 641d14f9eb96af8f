// C (f32) = A (f16) x packed B panels of 16 columns (f16), FMLA .8H by element.
//
// Registers for 8 rows of A (8 k each) and one panel:
//
//                       b[0]: columns 0-7   b[1]: columns 8-15
//   a[0] 8 k            sum[0][0]           sum[0][1]
//   ...                 ...                 ...
//   a[7]                sum[7][0]           sum[7][1]          16 sums + 2 of B + 8 of A = 26 of 32
//
// (An f16 element can only be taken from V0-V15; the 8 of A fit there.)
//
// Range and precision: a float16 sum runs over kF16Chain = 64 k, then it is widened and added to C in float32. A chain
// overflows only if |sum| passes 65504 (for PV: |v| above 1023 with all 64 weights at 1) and rounds 64 times at
// 2^-11 of the running sum. Shorter chains cost: the widening is 32 FCVTL (2 cycles each, V0 alone) per 8 rows.
//
// Bound by FMLA: 16 per k on 2 pipes, 8 cycles for 128 MAC on Cortex-A76, beside 3 loads; widening adds about 64 cycles
// of V0 per 512 cycles.
//
// Rejected: FMLAL (f16 x f16 into f32; needs FEAT_FHM, which A76 lacks); one chain over all of k (no widening, but PV
// over 256 keys loses two more bits).
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {
namespace {

inline float16x8_t load8(const uint16_t* p) { return vreinterpretq_f16_u16(vld1q_u16(p)); }

template <int kRows, int kLane>
inline void multiply_k(const float16x8_t (&a)[kRows], const uint16_t* b, float16x8_t (&sum)[kRows][2]) {
  const float16x8_t b0 = load8(b), b1 = load8(b + 8);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    sum[r][0] = vfmaq_laneq_f16(sum[r][0], b0, a[r], kLane);
    sum[r][1] = vfmaq_laneq_f16(sum[r][1], b1, a[r], kLane);
  }
}

template <int kRows>
inline void multiply_8k(const uint16_t* a, size_t lda, const uint16_t* b, float16x8_t (&sum)[kRows][2]) {
  float16x8_t rows[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) rows[r] = load8(a + r * lda);
  multiply_k<kRows, 0>(rows, b, sum);
  multiply_k<kRows, 1>(rows, b + kFloatPanel, sum);
  multiply_k<kRows, 2>(rows, b + 2 * kFloatPanel, sum);
  multiply_k<kRows, 3>(rows, b + 3 * kFloatPanel, sum);
  multiply_k<kRows, 4>(rows, b + 4 * kFloatPanel, sum);
  multiply_k<kRows, 5>(rows, b + 5 * kFloatPanel, sum);
  multiply_k<kRows, 6>(rows, b + 6 * kFloatPanel, sum);
  multiply_k<kRows, 7>(rows, b + 7 * kFloatPanel, sum);
}

// c[0..8) = (add ? c : 0) + sum
inline void store_widened(float16x8_t sum, bool add, float* c) {
  float32x4_t low = vcvt_f32_f16(vget_low_f16(sum)), high = vcvt_high_f32_f16(sum);
  if (add) {
    low = vaddq_f32(low, vld1q_f32(c));
    high = vaddq_f32(high, vld1q_f32(c + 4));
  }
  vst1q_f32(c, low);
  vst1q_f32(c + 4, high);
}

template <int kRows>
inline void rows_by_panel(size_t k, const uint16_t* a, size_t lda, const uint16_t* b, bool add, float* c, size_t ldc) {
  for (size_t start = 0; start < k; start += kF16Chain) {
    const size_t end = start + kF16Chain < k ? start + kF16Chain : k;
    float16x8_t sum[kRows][2];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = vdupq_n_f16(static_cast<float16_t>(0.0f));
    for (size_t i = start; i < end; i += 8, b += 8 * kFloatPanel) multiply_8k<kRows>(a + i, lda, b, sum);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      store_widened(sum[r][0], add || start > 0, c + r * ldc);
      store_widened(sum[r][1], add || start > 0, c + r * ldc + 8);
    }
  }
}

}  // namespace

void gemm_f16f16f32_fp16(size_t m, size_t n, size_t k, const uint16_t* a, size_t lda, const uint16_t* b_packed,
                         size_t b_stride, bool add, float* c, size_t ldc) {
  for (size_t j = 0; j < n; j += kFloatPanel, b_packed += b_stride) {
    size_t i = 0;
    for (; i + 8 <= m; i += 8) rows_by_panel<8>(k, a + i * lda, lda, b_packed, add, c + i * ldc + j, ldc);
    for (; i + 4 <= m; i += 4) rows_by_panel<4>(k, a + i * lda, lda, b_packed, add, c + i * ldc + j, ldc);
    for (; i < m; ++i) rows_by_panel<1>(k, a + i * lda, lda, b_packed, add, c + i * ldc + j, ldc);
  }
}

}  // namespace intattention
