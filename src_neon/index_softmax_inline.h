// The index softmax of one row of one key block, shared by the neon and the dotprod kernel, which differ in how
// they add up E' and add the log scale. Everything is `static` and instantiated with a type of the including file:
// the header is compiled with several -march flags, and nothing may be merged across them.
//
// Two passes over the visible keys, 16 at a time (two registers of 8 s16; "x2" is per register):
//
//   pass 1   logits | SQRSHRN #n | SQRDMULH key_ratio -> u | SQSHL #e | y: SQRDMLAH(log_scale, u, factor) | SMAX
//            4 s32    4            x2                        x2, e > 0  x2                                  x2
//   pass 2   y -> scratch -> y | SQSUB max -> w | z = (w >> 6) - w | UQRSHRN #4 | TBL4 -> E' | UDOT with the weights
//                            2   x2               SSHR, SUB x2       x2           1            2
//
//   registers, pass 1: 4 logits -> 2 s16, 2 ratios, 2 log scales, maximum; factor, e
//   registers, pass 2: max, 4 of LUT, 2 sums, 2 weights; 2 y -> 2 w -> 2 z -> 1 E'
//
// SQRDMULH is (2*x*y + 2^15) >> 16 = mulhrs; it saturates only for -32768 squared, and its second operand is never
// negative here. SQRDMLAH is sat16((c * 2^16 + 2*x*y + 2^15) >> 16) = sat16(c + mulhrs(x, y)); every core with
// dotprod (Armv8.2) has it, being part of Armv8.1. It overwrites c, which is the log scale just loaded. SQRSHRN and
// SRSHL round with unlimited width, so INT32 extremes do not wrap.
//
// The index without a multiplication. With w = y - max = -x:
//   (63 x + 512) >> 10 = floor((x + 8 - x/64) / 16) = (x - ceil(x/64) + 8) >> 4 = ((w >> 6) - w + 8) >> 4
// since dropping a fraction before the division by 16 does not change its floor, and -ceil(x/64) = w >> 6; the 8 is
// the rounding of UQRSHRN. The clip of x to 1024 is left to the table: x >= 1024 gives index 63 (E' = 0) or more,
// UQRSHRN saturates it at 255, and TBL4 answers 0 for every index above 63.
//
// Chunks that begin or end cuts take their own, masked copy of each step: hidden keys get y = -32768 in
// pass 1 (out of the maximum) and E' = 0 in pass 2. Chunks outside are zero-filled.
//
// Bound on Cortex-A76 (V0 multiplies, V1 shifts, the rest on either), cycles per 16 keys:
//   pass 1: SQRDMULH 2 x 2 + SQRDMLAH 2 x 2 = 8 on V0; SQRSHRN 4 (+ SQSHL 2) on V1; SMAX 2, STP 2 on either: 8.0, and
//           9.0 with e > 0
//   pass 2: SSHR 2 + UQRSHRN 2 on V1; SQSUB 2, SUB 2, TBL4 3, UDOT 2, half an ST1 of two registers on either: 7.0
//
// Rejected:
// - SRSHL + SQXTN for every n: 10 instead of 4 on V1. Kept for n = 0 and n > 7, which the head dimensions up to 256
//   do not produce.
// - SQRDMULH by 2016 for the index: V0 does 4 in pass 2 and the clip is one SMIN per register more.
// - max(y0, y1) before the running maximum: SMAX waits for both.
#pragma once

#include "kernels.h"
#include "neon_inline.h"

namespace intattention {

constexpr size_t kSoftmaxChunk = 16;

// A shift as a type, so that a generic lambda can hand it on as an immediate.
template <int kValue>
struct Immediate {
  static constexpr int value = kValue;
};

// All ones where begin <= first + lane < end.
static inline uint16x8_t visible_of_8(size_t first, size_t begin, size_t end) {
  static const uint16_t kLanes[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  const uint16x8_t j = vaddq_u16(vld1q_u16(kLanes), vdupq_n_u16(static_cast<uint16_t>(first)));
  return vandq_u16(vcgeq_u16(j, vdupq_n_u16(static_cast<uint16_t>(begin))),
                   vcltq_u16(j, vdupq_n_u16(static_cast<uint16_t>(end))));
}

// What pass 1 needs of the row.
struct SoftmaxScale {
  int32x4_t narrow;  // -n
  int16x8_t lshift, factor;
};

// y of 8 keys. kNarrow = 0: any n, else n is the immediate kNarrow; kShift = false is for e = 0.
template <typename Isa, int kNarrow, bool kShift>
static inline int16x8_t counts_of_8(const int32_t* logits, const int16_t* key_ratio, const int16_t* log_scale,
                                    const SoftmaxScale& row) {
  int16x8_t narrowed;
  if constexpr (kNarrow == 0) {
    const int16x4_t low = vqmovn_s32(vrshlq_s32(vld1q_s32(logits), row.narrow));
    narrowed = vqmovn_high_s32(low, vrshlq_s32(vld1q_s32(logits + 4), row.narrow));
  } else {
    const int16x4_t low = vqrshrn_n_s32(vld1q_s32(logits), kNarrow);
    narrowed = vqrshrn_high_n_s32(low, vld1q_s32(logits + 4), kNarrow);
  }
  int16x8_t u = vqrdmulhq_s16(narrowed, vld1q_s16(key_ratio));
  if constexpr (kShift) u = vqshlq_s16(u, row.lshift);
  return Isa::multiply_add(vld1q_s16(log_scale), u, row.factor);
}

// The chunks of a row: whole ones in [full_begin, full_end), and at most two that begin or end cuts.
struct SoftmaxSpan {
  size_t begin, end;            // visible keys
  size_t first, last;           // chunks with visible keys
  size_t full_begin, full_end;  // chunks visible throughout; empty if full_begin >= full_end

  bool cut_first() const { return first < full_begin; }
  bool cut_last() const { return full_begin <= full_end && full_end < last; }
};

static inline SoftmaxSpan softmax_span(size_t begin, size_t end) {
  if (begin >= end) return {0, 0, 0, 0, 0, 0};
  const size_t mask = kSoftmaxChunk - 1;
  return {begin, end, begin & ~mask, (end + mask) & ~mask, (begin + mask) & ~mask, end & ~mask};
}

// Pass 1: y into scratch; returns maxima of the visible keys in 8 lanes.
template <typename Isa, int kNarrow, bool kShift>
static inline int16x8_t softmax_counts(const SoftmaxSpan& span, const int32_t* logits, const IndexSoftmaxKeys& keys,
                                       const SoftmaxScale row, int16_t* scratch) {
  const int16x8_t lowest = vdupq_n_s16(-32768);
  const auto cut = [&](size_t first, int16x8_t maxima) {
    for (size_t j = first; j < first + kSoftmaxChunk; j += 8) {
      const int16x8_t y = counts_of_8<Isa, kNarrow, kShift>(logits + j, keys.key_ratio + j, keys.log_scale + j, row);
      const int16x8_t visible = vbslq_s16(visible_of_8(j, span.begin, span.end), y, lowest);
      vst1q_s16(scratch + j, visible);
      maxima = vmaxq_s16(maxima, visible);
    }
    return maxima;
  };
  int16x8_t maxima = span.cut_first() ? cut(span.first, lowest) : lowest;
  const int32_t* a = logits + span.full_begin;
  const int16_t* ratio = keys.key_ratio + span.full_begin;
  const int16_t* log_scale = keys.log_scale + span.full_begin;
  int16_t* out = scratch + span.full_begin;
  for (size_t j = span.full_begin; j < span.full_end; j += kSoftmaxChunk) {
    const int16x8_t y0 = counts_of_8<Isa, kNarrow, kShift>(a, ratio, log_scale, row);
    const int16x8_t y1 = counts_of_8<Isa, kNarrow, kShift>(a + 8, ratio + 8, log_scale + 8, row);
    maxima = vmaxq_s16(vmaxq_s16(maxima, y0), y1);
    vst1q_s16(out, y0);
    vst1q_s16(out + 8, y1);
    a += kSoftmaxChunk;
    ratio += kSoftmaxChunk;
    log_scale += kSoftmaxChunk;
    out += kSoftmaxChunk;
  }
  return span.cut_last() ? cut(span.full_end, maxima) : maxima;
}

// Table indices of 16 keys.
static inline uint8x16_t softmax_indices(const int16_t* y, int16x8_t max) {
  const int16x8_t w0 = vqsubq_s16(vld1q_s16(y), max), w1 = vqsubq_s16(vld1q_s16(y + 8), max);
  const int16x8_t z0 = vsubq_s16(vshrq_n_s16(w0, 6), w0), z1 = vsubq_s16(vshrq_n_s16(w1, 6), w1);
  const uint8x8_t low = vqrshrn_n_u16(vreinterpretq_u16_s16(z0), 4);
  return vqrshrn_high_n_u16(low, vreinterpretq_u16_s16(z1), 4);
}

// Pass 2: E' into probs; returns the sum.
template <typename Isa>
static inline uint32_t softmax_weights(const SoftmaxSpan& span, const int16_t* scratch, const IndexSoftmaxKeys& keys,
                                       int16x8_t max, uint8_t* probs) {
  const uint8x16x4_t lut = {{vld1q_u8(kIndexSoftmaxLut), vld1q_u8(kIndexSoftmaxLut + 16),
                             vld1q_u8(kIndexSoftmaxLut + 32), vld1q_u8(kIndexSoftmaxLut + 48)}};
  uint32x4_t sum_low = vdupq_n_u32(0), sum_high = sum_low;
  const auto look_up = [&](const int16_t* y) { return vqtbl4q_u8(lut, softmax_indices(y, max)); };
  const auto cut = [&](size_t j) {
    const uint8x8_t left = vmovn_u16(visible_of_8(j, span.begin, span.end));
    const uint8x8_t right = vmovn_u16(visible_of_8(j + 8, span.begin, span.end));
    const uint8x16_t e = vandq_u8(look_up(scratch + j), vcombine_u8(left, right));
    sum_low = Isa::dot(sum_low, e, vld1q_u8(keys.weight_low + j));
    sum_high = Isa::dot(sum_high, e, vld1q_u8(keys.weight_high + j));
    vst1q_u8(probs + j, e);
  };
  if (span.cut_first()) cut(span.first);
  const int16_t* y = scratch + span.full_begin;
  const uint8_t *low = keys.weight_low + span.full_begin, *high = keys.weight_high + span.full_begin;
  uint8_t* out = probs + span.full_begin;
  size_t j = span.full_begin;
  for (; j + 2 * kSoftmaxChunk <= span.full_end; j += 2 * kSoftmaxChunk) {
    const uint8x16_t e0 = look_up(y), e1 = look_up(y + kSoftmaxChunk);
    sum_low = Isa::dot(Isa::dot(sum_low, e0, vld1q_u8(low)), e1, vld1q_u8(low + kSoftmaxChunk));
    sum_high = Isa::dot(Isa::dot(sum_high, e0, vld1q_u8(high)), e1, vld1q_u8(high + kSoftmaxChunk));
    vst1q_u8(out, e0);
    vst1q_u8(out + kSoftmaxChunk, e1);
    y += 2 * kSoftmaxChunk;
    low += 2 * kSoftmaxChunk;
    high += 2 * kSoftmaxChunk;
    out += 2 * kSoftmaxChunk;
  }
  if (j < span.full_end) cut(j);  // a whole one: the mask is all ones
  if (span.cut_last()) cut(span.full_end);
  return vaddvq_u32(sum_low) + (vaddvq_u32(sum_high) << 8);
}

// Pass 1 with the row's n: as an immediate, where there is one.
template <typename Isa, bool kShift>
static inline int16x8_t softmax_counts_any(int32_t n, const SoftmaxSpan& span, const int32_t* logits,
                                           const IndexSoftmaxKeys& keys, const SoftmaxScale& row, int16_t* scratch) {
  const auto counts = [&](auto narrow) {
    return softmax_counts<Isa, decltype(narrow)::value, kShift>(span, logits, keys, row, scratch);
  };
  switch (n) {
    case 1:
      return counts(Immediate<1>());
    case 2:
      return counts(Immediate<2>());
    case 3:
      return counts(Immediate<3>());
    case 4:
      return counts(Immediate<4>());
    case 5:
      return counts(Immediate<5>());
    case 6:
      return counts(Immediate<6>());
    case 7:
      return counts(Immediate<7>());
    default:
      return counts(Immediate<0>());
  }
}

static inline void softmax_clear(uint8_t* probs, size_t begin, size_t end) {
  for (size_t j = begin; j < end; j += kSoftmaxChunk) vst1q_u8(probs + j, vdupq_n_u8(0));
}

// kernel_table.h, IndexSoftmaxS32U8. Isa::dot(sum, e, w) adds 16 products to the four lanes of sum in any order;
// Isa::multiply_add(c, x, y) is sat16(c + mulhrs(x, y)).
template <typename Isa>
static inline void index_softmax(size_t n, const int32_t* logits, const IndexSoftmaxKeys& keys, IndexSoftmaxRow* row,
                                 int16_t* scratch, uint8_t* probs) {
  const int32_t running = row->max;
  const SoftmaxSpan span = softmax_span(row->begin, row->end);
  row->max = kNoMax;
  row->sum = 0;
  if (span.last == 0) return softmax_clear(probs, 0, n);

  const SoftmaxScale scale = {vdupq_n_s32(-row->narrow), vdupq_n_s16(static_cast<int16_t>(row->lshift)),
                              vdupq_n_s16(row->factor)};
  int16x8_t maxima = row->lshift > 0 ? softmax_counts_any<Isa, true>(row->narrow, span, logits, keys, scale, scratch)
                                     : softmax_counts_any<Isa, false>(row->narrow, span, logits, keys, scale, scratch);
  for (int i = 0; i < 3; ++i) maxima = vpmaxq_s16(maxima, maxima);
  row->max = vgetq_lane_s16(maxima, 0);
  if (row->max + kDropCounts < running) return softmax_clear(probs, 0, n);
  softmax_clear(probs, 0, span.first);
  softmax_clear(probs, span.last, n);
  row->sum = softmax_weights<Isa>(span, scratch, keys, maxima, probs);
}

}  // namespace intattention
