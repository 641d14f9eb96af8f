// One row of one key block of the index softmax: s32 logits -> t (s16 counts) -> E, E' (u8), sum, max.
//
// Two passes over the visible keys, 16 at a time:
//
//   pass 1   logits  SRSHL #-n  SQXTN   | x key_ratio  SQRDMULH | SQSHL #e | x factor SQRDMULH | t -> scratch, SMAX
//            s32 x4 x4          s16 x8 x2                                                        s16
//   pass 2   max - t  SQSUB | UMIN 1024 | x 992  SQRDMULH | XTN | TBL2 (LUT, 32 bytes) = E | UADALP
//            s16                           = (x*31+512)>>10  u8                          E x value_ratio, RSHRN #8 = E'
//
// SQRDMULH is (2*x*y + 2^15) >> 16 = mulhrs; it saturates only for -32768 squared, and its second operand
// is never negative here. SRSHL rounds with unlimited width, so INT32 extremes do not wrap. max - t saturates
// at 32767 and is cut to 1024 anyway. A chunk that begin or end cuts is masked explicitly: its hidden keys
// take t = -32768 in pass 1 (out of the maximum) and E = 0 in pass 2. Chunks outside are zero-filled.
//
// Bound on Cortex-A76, per 16 keys, in cycles of the busier pipe: pass 1: SQRDMULH 4 x 2.0 on V0;
// SRSHL 4 + SQXTN 4 + SQSHL 2 = 10 on V1; pass 2: SQRDMULH 2 x 2.0 and MUL 2 x 2.0 on V0. About 18 V0 and
// 16 V1 cycles: 1.1 per key, against 4 per key of QK for d = 128.
//
// Rejected: SRSHL + SQXTN as one SQRSHRN (needs an immediate: 16 copies of the kernel for 2 cycles).
#include "kernels.h"
#include "neon_inline.h"

namespace intattention {
namespace {

constexpr size_t kChunk = 16;

struct RowConstants {
  int32x4_t narrow;
  int16x8_t lshift;
  int16x8_t factor;
};

inline int16x8_t counts_of_8(const int32_t* logits, const int16_t* key_ratio, const RowConstants& row) {
  const int16x4_t low = vqmovn_s32(vrshlq_s32(vld1q_s32(logits), row.narrow));
  const int16x4_t high = vqmovn_s32(vrshlq_s32(vld1q_s32(logits + 4), row.narrow));
  const int16x8_t u = vqrdmulhq_s16(vcombine_s16(low, high), vld1q_s16(key_ratio));
  return vqrdmulhq_s16(vqshlq_s16(u, row.lshift), row.factor);
}

// All ones where begin <= first + lane < end.
inline uint16x8_t visible_of_8(size_t first, size_t begin, size_t end) {
  static const uint16_t kLanes[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  const uint16x8_t j = vaddq_u16(vld1q_u16(kLanes), vdupq_n_u16(static_cast<uint16_t>(first)));
  return vandq_u16(vcgeq_u16(j, vdupq_n_u16(static_cast<uint16_t>(begin))),
                   vcltq_u16(j, vdupq_n_u16(static_cast<uint16_t>(end))));
}

inline uint8x8_t index_of_8(const int16_t* t, int16x8_t max) {
  const int16x8_t distance = vminq_s16(vqsubq_s16(max, vld1q_s16(t)), vdupq_n_s16(1024));
  return vqmovun_s16(vqrdmulhq_s16(distance, vdupq_n_s16(992)));
}

inline uint8x8_t weight_of_8(uint8x8_t e, const uint16_t* value_ratio) {
  return vrshrn_n_u16(vmulq_u16(vmovl_u8(e), vld1q_u16(value_ratio)), 8);
}

}  // namespace

void index_softmax_s32u8_neon(size_t n, const int32_t* logits, const int16_t* key_ratio, const uint16_t* value_ratio,
                              IndexSoftmaxRow* row, int16_t* scratch, uint8_t* probs) {
  const size_t begin = row->begin, end = row->end;
  const bool empty = begin >= end;
  const size_t first = empty ? 0 : begin / kChunk * kChunk;
  const size_t last = empty ? 0 : (end + kChunk - 1) / kChunk * kChunk;
  const RowConstants constants = {vdupq_n_s32(-row->narrow), vdupq_n_s16(static_cast<int16_t>(row->lshift)),
                                  vdupq_n_s16(row->factor)};

  const int16x8_t lowest = vdupq_n_s16(-32768);
  int16x8_t maxima = lowest;
  for (size_t j = first; j < last; j += kChunk) {
    int16x8_t t0 = counts_of_8(logits + j, key_ratio + j, constants);
    int16x8_t t1 = counts_of_8(logits + j + 8, key_ratio + j + 8, constants);
    if (j < begin || j + kChunk > end) {
      t0 = vbslq_s16(visible_of_8(j, begin, end), t0, lowest);
      t1 = vbslq_s16(visible_of_8(j + 8, begin, end), t1, lowest);
    }
    vst1q_s16(scratch + j, t0);
    vst1q_s16(scratch + j + 8, t1);
    maxima = vmaxq_s16(maxima, vmaxq_s16(t0, t1));
  }
  const int32_t block_max = vmaxvq_s16(maxima);
  if (!empty && block_max > row->max) row->max = block_max;

  const int16x8_t max = vdupq_n_s16(static_cast<int16_t>(row->max));
  const uint8x16x2_t lut = {{vld1q_u8(kIndexSoftmaxLut), vld1q_u8(kIndexSoftmaxLut + 16)}};
  uint32x4_t sum = vdupq_n_u32(0);
  for (size_t j = 0; j < first; j += kChunk) vst1q_u8(probs + j, vdupq_n_u8(0));
  for (size_t j = first; j < last; j += kChunk) {
    const uint8x8_t index0 = index_of_8(scratch + j, max), index1 = index_of_8(scratch + j + 8, max);
    uint8x16_t e = vqtbl2q_u8(lut, vcombine_u8(index0, index1));
    if (j < begin || j + kChunk > end) {
      e = vandq_u8(e, vcombine_u8(vmovn_u16(visible_of_8(j, begin, end)), vmovn_u16(visible_of_8(j + 8, begin, end))));
    }
    sum = vpadalq_u16(sum, vpaddlq_u8(e));
    vst1q_u8(probs + j, vcombine_u8(weight_of_8(vget_low_u8(e), value_ratio + j),
                                    weight_of_8(vget_high_u8(e), value_ratio + j + 8)));
  }
  for (size_t j = last; j < n; j += kChunk) vst1q_u8(probs + j, vdupq_n_u8(0));
  row->sum = vaddvq_u32(sum);
}

}  // namespace intattention
