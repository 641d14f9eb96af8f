// Float softmax of one row of one key block, s32 logits -> s8; formula in kernel_table.h, docs/numerics.md section 8.
//
//   pass 1   SMAX over the s32 logits: exact, and saves a pass over floats
//   pass 2   A - max  SUB | SCVTF | x factor | exp | x 127 | + 1.5 * 2^23 (the low byte is rne) | UZP1 UZP1 | UADALP
//
// exp is the sequence of exp_f32.h with two shortcuts that give the same bits for x <= 0: n stays in the low bits of
// x * log2(e) + 1.5 * 2^23 and is shifted into the exponent of the polynomial by an integer addition (no FCVTZS, no
// multiplication). At the clamp of -87, n = -126 comes with a polynomial above 1, so the result is a normal number.
//
// Bound on Cortex-A76, per 4 keys: 28 operations at 0.5, SCVTF 2.0 on V0; llvm-mca-19 -mcpu=neoverse-n1 says 61 cycles
// for 16 keys of pass 2, 3.8 per key, against 8 of QK and PV at d = 128. This is the detour that the index softmax
// avoids.
//
// Rejected: SCVTF replaced by adding a magic number, as for the other direction: exact only while max - A < 2^22. A
// polynomial of degree 3, enough for 7 bits of P (6 operations fewer): one exp for the whole library, equal on every
// ISA, was preferred.
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {
namespace {

constexpr size_t kChunk = 16;

// All ones where begin <= first + lane < end.
inline uint32x4_t visible_of_4(size_t first, size_t begin, size_t end) {
  static const uint32_t kLanes[4] = {0, 1, 2, 3};
  const uint32x4_t j = vaddq_u32(vld1q_u32(kLanes), vdupq_n_u32(static_cast<uint32_t>(first)));
  return vandq_u32(vcgeq_u32(j, vdupq_n_u32(static_cast<uint32_t>(begin))),
                   vcltq_u32(j, vdupq_n_u32(static_cast<uint32_t>(end))));
}

// Logits with the hidden keys of a chunk replaced.
inline int32x4_t visible_logits(const int32_t* logits, size_t j, size_t begin, size_t end, int32x4_t hidden) {
  return vbslq_s32(visible_of_4(j, begin, end), vld1q_s32(logits + j), hidden);
}

inline float32x4_t multiply_add(float32x4_t a, float32x4_t b, float c) {
  return vaddq_f32(vmulq_f32(a, b), vdupq_n_f32(c));
}

// exp_f32(x) for x <= 0; NaN cannot occur.
inline float32x4_t exp_of_nonpositive(float32x4_t x) {
  x = vmaxq_f32(x, vdupq_n_f32(-87.0f));
  const float32x4_t shifted = multiply_add(x, vdupq_n_f32(1.44269504f), 12582912.0f);
  const float32x4_t n = vsubq_f32(shifted, vdupq_n_f32(12582912.0f));
  float32x4_t r = vsubq_f32(x, vmulq_f32(n, vdupq_n_f32(0.693359375f)));
  r = vsubq_f32(r, vmulq_f32(n, vdupq_n_f32(-2.12194440e-4f)));
  float32x4_t p = vdupq_n_f32(1.0f / 720.0f);
  p = multiply_add(p, r, 1.0f / 120.0f);
  p = multiply_add(p, r, 1.0f / 24.0f);
  p = multiply_add(p, r, 1.0f / 6.0f);
  p = multiply_add(p, r, 0.5f);
  p = multiply_add(p, r, 1.0f);
  p = multiply_add(p, r, 1.0f);
  const int32x4_t exponent = vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23);
  return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), exponent));
}

// 0..127 in the low byte; the upper ones are those of 1.5 * 2^23.
inline int32x4_t probs_of_4(int32x4_t logits, int32x4_t max, float32x4_t factor) {
  const float32x4_t x = vmulq_f32(vcvtq_f32_s32(vsubq_s32(logits, max)), factor);
  return vreinterpretq_s32_f32(multiply_add(exp_of_nonpositive(x), vdupq_n_f32(127.0f), 12582912.0f));
}

inline int8x16_t low_bytes(const int32x4_t* p) {
  const int16x8_t low = vuzp1q_s16(vreinterpretq_s16_s32(p[0]), vreinterpretq_s16_s32(p[1]));
  const int16x8_t high = vuzp1q_s16(vreinterpretq_s16_s32(p[2]), vreinterpretq_s16_s32(p[3]));
  return vuzp1q_s8(vreinterpretq_s8_s16(low), vreinterpretq_s8_s16(high));
}

}  // namespace

void softmax_s32s8_neon(size_t n, const int32_t* logits, FloatSoftmaxRow* row, int8_t* probs) {
  const size_t begin = row->begin, end = row->end;
  const bool empty = begin >= end;
  const size_t first = empty ? 0 : begin / kChunk * kChunk;
  const size_t last = empty ? 0 : (end + kChunk - 1) / kChunk * kChunk;

  int32x4_t maxima[4];
  for (int32x4_t& lanes : maxima) lanes = vdupq_n_s32(row->max);
  for (size_t j = first; j < last; j += kChunk) {
    const bool cut = j < begin || j + kChunk > end;
    for (size_t i = 0; i < 4; ++i) {
      const size_t key = j + 4 * i;
      maxima[i] = vmaxq_s32(
          maxima[i], cut ? visible_logits(logits, key, begin, end, vdupq_n_s32(kNoMax)) : vld1q_s32(logits + key));
    }
  }
  row->max = vmaxvq_s32(vmaxq_s32(vmaxq_s32(maxima[0], maxima[1]), vmaxq_s32(maxima[2], maxima[3])));

  const int32x4_t max = vdupq_n_s32(row->max);
  const float32x4_t factor = vdupq_n_f32(row->factor);
  uint32x4_t sum = vdupq_n_u32(0);
  for (size_t j = 0; j < first; j += kChunk) vst1q_s8(probs + j, vdupq_n_s8(0));
  for (size_t j = first; j < last; j += kChunk) {
    const bool cut = j < begin || j + kChunk > end;
    int32x4_t p[4];
    for (size_t i = 0; i < 4; ++i) {
      const size_t key = j + 4 * i;
      p[i] = probs_of_4(cut ? visible_logits(logits, key, begin, end, max) : vld1q_s32(logits + key), max, factor);
      if (cut) p[i] = vandq_s32(p[i], vreinterpretq_s32_u32(visible_of_4(key, begin, end)));
    }
    const int8x16_t bytes = low_bytes(p);
    sum = vpadalq_u16(sum, vpaddlq_u8(vreinterpretq_u8_s8(bytes)));
    vst1q_s8(probs + j, bytes);
  }
  for (size_t j = last; j < n; j += kChunk) vst1q_s8(probs + j, vdupq_n_s8(0));
  row->sum = static_cast<int32_t>(vaddvq_u32(sum));
}

}  // namespace intattention
