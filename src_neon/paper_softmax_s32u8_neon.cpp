// IndexSoftmax as published, one whole row; formula in kernel_table.h, docs/numerics.md section 7.
//
//   pass 1   SMAX over the s32 logits
//   pass 2   max - A  SUB | SMIN c | USHL #lshift | UMULL, UMULL2 by the multiplier | UZP2 (upper halves) | + half |
//   USHL #-shift
//            UZP1 UZP1 | TBL2 (LUT) | UADALP; the index is stored as a byte
//   pass 3   index -> P by TBL2: P has only 32 values in a row, so the row sum divides 32 numbers, not the row
//
// The multiplication is the exact division by c_int of src_core/paper_index.h; the table of P is exact in float32,
// because a quotient 255 E / sum that is not a tie is at least 1 / (2 sum) away from one.
//
// Bound on Cortex-A76, per 16 keys of pass 2: UMULL 8 x 1.0 on V0; USHL 8 x 1.0 on V1; the rest 20 x 0.5: at least 13
// cycles; llvm-mca-19 -mcpu=neoverse-n1 says 21 for the loop, 1.3 per key, against 8 of QK and PV at d = 128.
//
// Rejected: FCVTZS of a float quotient (2.0 per 4 keys on V0, and exact only below c_int = 90,000).
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

inline int32_t row_max(const int32_t* logits, size_t begin, size_t end) {
  const int32x4_t lowest = vdupq_n_s32(INT32_MIN);
  int32x4_t maxima[4] = {lowest, lowest, lowest, lowest};
  for (size_t j = begin / kChunk * kChunk; j < end; j += kChunk) {
    const bool cut = j < begin || j + kChunk > end;
    for (size_t i = 0; i < 4; ++i) {
      int32x4_t a = vld1q_s32(logits + j + 4 * i);
      if (cut) a = vbslq_s32(visible_of_4(j + 4 * i, begin, end), a, lowest);
      maxima[i] = vmaxq_s32(maxima[i], a);
    }
  }
  return vmaxvq_s32(vmaxq_s32(vmaxq_s32(maxima[0], maxima[1]), vmaxq_s32(maxima[2], maxima[3])));
}

struct Constants {
  int32x4_t max, limit, lshift;
  uint32_t multiplier;
  uint32x4_t half;
  int32x4_t shift;  // negative: USHL shifts right
};

inline uint32x4_t index_of_4(const int32_t* logits, const Constants& c) {
  const int32x4_t delta = vminq_s32(vsubq_s32(c.max, vld1q_s32(logits)), c.limit);
  const uint32x4_t left = vshlq_u32(vreinterpretq_u32_s32(delta), c.lshift);
  const uint64x2_t low = vmull_n_u32(vget_low_u32(left), c.multiplier);
  const uint64x2_t high = vmull_high_n_u32(left, c.multiplier);
  const uint32x4_t upper = vuzp2q_u32(vreinterpretq_u32_u64(low), vreinterpretq_u32_u64(high));
  return vshlq_u32(vaddq_u32(upper, c.half), c.shift);
}

// The low bytes of 16 lanes.
inline uint8x16_t narrow16(uint32x4_t a, uint32x4_t b, uint32x4_t c, uint32x4_t d) {
  const uint16x8_t low = vuzp1q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b));
  const uint16x8_t high = vuzp1q_u16(vreinterpretq_u16_u32(c), vreinterpretq_u16_u32(d));
  return vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high));
}

inline uint8x16_t visible_of_16(size_t j, size_t begin, size_t end) {
  return narrow16(visible_of_4(j, begin, end), visible_of_4(j + 4, begin, end), visible_of_4(j + 8, begin, end),
                  visible_of_4(j + 12, begin, end));
}

// rne(255 * LUT[i] / sum)
inline uint8x16x2_t probability_table(uint32_t sum) {
  const float32x4_t divisor = vdupq_n_f32(static_cast<float>(sum));
  uint32x4_t p[8];
  for (int i = 0; i < 4; ++i) {
    const uint16x8_t e = vmovl_u8(vld1_u8(kPaperLut + 8 * i));
    const float32x4_t low = vmulq_n_f32(vcvtq_f32_u32(vmovl_u16(vget_low_u16(e))), 255.0f);
    const float32x4_t high = vmulq_n_f32(vcvtq_f32_u32(vmovl_u16(vget_high_u16(e))), 255.0f);
    p[2 * i] = vcvtnq_u32_f32(vdivq_f32(low, divisor));
    p[2 * i + 1] = vcvtnq_u32_f32(vdivq_f32(high, divisor));
  }
  return {{narrow16(p[0], p[1], p[2], p[3]), narrow16(p[4], p[5], p[6], p[7])}};
}

}  // namespace

uint32_t paper_softmax_s32u8_neon(size_t n, const int32_t* logits, size_t begin, size_t end, const PaperIndex* index,
                                  uint8_t* probs) {
  const bool empty = begin >= end;
  const size_t first = empty ? 0 : begin / kChunk * kChunk;
  const size_t last = empty ? 0 : (end + kChunk - 1) / kChunk * kChunk;
  for (size_t j = 0; j < first; j += kChunk) vst1q_u8(probs + j, vdupq_n_u8(0));
  for (size_t j = last; j < n; j += kChunk) vst1q_u8(probs + j, vdupq_n_u8(0));
  if (empty) return 0;

  const Constants c = {vdupq_n_s32(row_max(logits, begin, end)),
                       vdupq_n_s32(index->limit),
                       vdupq_n_s32(index->lshift),
                       index->multiplier,
                       vdupq_n_u32(index->half),
                       vdupq_n_s32(-index->shift)};
  const uint8x16x2_t lut = {{vld1q_u8(kPaperLut), vld1q_u8(kPaperLut + 16)}};
  uint32x4_t sum = vdupq_n_u32(0);
  for (size_t j = first; j < last; j += kChunk) {
    uint8x16_t i = narrow16(index_of_4(logits + j, c), index_of_4(logits + j + 4, c), index_of_4(logits + j + 8, c),
                            index_of_4(logits + j + 12, c));
    // A hidden key takes index 255, which TBL turns into 0; its own delta may be anything.
    if (j < begin || j + kChunk > end) i = vornq_u8(i, visible_of_16(j, begin, end));
    vst1q_u8(probs + j, i);
    sum = vpadalq_u16(sum, vpaddlq_u8(vqtbl2q_u8(lut, i)));
  }
  const uint32_t total = vaddvq_u32(sum);
  const uint8x16x2_t table = probability_table(total);
  for (size_t j = first; j < last; j += kChunk) vst1q_u8(probs + j, vqtbl2q_u8(table, vld1q_u8(probs + j)));
  return total;
}

}  // namespace intattention
