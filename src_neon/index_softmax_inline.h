// The index softmax of one row of one key block, shared by the neon and the dotprod kernel, which differ in how
// they add up E. Everything is `static` and instantiated with a type of the including file: the header is
// compiled with several -march flags, and nothing may be merged across them.
//
// Two passes over the visible keys, 16 at a time (two registers of 8 s16; "x2" is per register):
//
//   pass 1   logits | SQRSHRN #n | x key_ratio  SQRDMULH | SQSHL #e | x factor  SQRDMULH | t -> scratch, SMAX
//            4 s32    4            x2                      x2         x2                        x2
//   pass 2   t | w = SQSUB(t, m) | z = 16 - w | z += w >> 5 (SSRA) | UQSHRN #5 | TBL2 -> E | sum
//            2   x2                x2           x2                   x2          1           1 or 2
//            E | ZIP with 0 | x value_ratio  MUL | RADDHN #8 -> E'
//            1   2            x2                   x2
//
//   registers, pass 1: 4 logits -> 2 s16, 2 ratios, e, factor, maximum
//   registers, pass 2: m, 16, 2 of LUT, zero, ones, sum; 2 w -> 2 z -> 1 E -> 2 products
//
// SQRDMULH is (2*x*y + 2^15) >> 16 = mulhrs; it saturates only for -32768 squared, and its second operand is never
// negative here. SQRSHRN and SRSHL round with unlimited width, so INT32 extremes do not wrap.
//
// The index without a multiplication. With y = m - t = -w:
//   (31 y + 512) >> 10 = floor((y + 16 - y/32) / 32) = (y + 16 - ceil(y/32)) >> 5 = (16 - w + (w >> 5)) >> 5
// since dropping a fraction before the division by 32 does not change its floor, and -ceil(y/32) = w >> 5.
// The clip of y to 1024 is left to the table: y >= 1024 gives index 31 (E = 0) or more, UQSHRN saturates it at
// 255, and TBL2 answers 0 for every index above 31.
//
// Chunks that begin or end cuts take their own, masked copy of each step: hidden keys get t = -32768 in
// pass 1 (out of the maximum) and E = 0 in pass 2. Chunks outside are zero-filled.
//
// Bound on Cortex-A76 (V0 multiplies, V1 shifts, the rest on either), cycles per 16 keys:
//   pass 1: SQRDMULH 4 x 2 = 8 on V0; SQRSHRN 4 + SQSHL 2 = 6 on V1; SMAX 2, STP 2 on either: 9.0
//   pass 2: MUL 2 x 2 = 4 on V0; SSRA 2 + UQSHRN 2 = 4 on V1; 10 others and half an STP: 9.5
// bench/mca: 10.1 and 9.8, that is 1.24 cycles per key; 1.45 with filling and draining the pipeline for every row of
// 256 keys, against 4 cycles per key of QK for d = 128. The 16 bytes of E' are stored in pairs, as STP of two
// registers takes the V pipes no longer than STR of one.
//
// Rejected:
// - SRSHL + SQXTN for every n: 10 instead of 6 on V1, pass 1 becomes 11. Kept for n = 0 and n > 7, which the
//   head dimensions up to 256 do not produce.
// - SQRDMULH by 992 for the index: V0 does 8 and the clip is one SMIN per register more.
// - value_ratio as u8 with UMULL: 256 does not fit; putting it back costs more than UMULL saves.
// - a copy without SQSHL for e = 0: 1 cycle in 19 per 16 keys, for twice the copies of pass 1.
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

struct SoftmaxConstants {
  int32x4_t narrow;
  int16x8_t lshift;
  int16x8_t factor;
};

// All ones where begin <= first + lane < end.
static inline uint16x8_t visible_of_8(size_t first, size_t begin, size_t end) {
  static const uint16_t kLanes[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  const uint16x8_t j = vaddq_u16(vld1q_u16(kLanes), vdupq_n_u16(static_cast<uint16_t>(first)));
  return vandq_u16(vcgeq_u16(j, vdupq_n_u16(static_cast<uint16_t>(begin))),
                   vcltq_u16(j, vdupq_n_u16(static_cast<uint16_t>(end))));
}

// kNarrow = 0: the shift is in row.narrow (any n); otherwise it is the immediate kNarrow.
template <int kNarrow>
static inline int16x8_t counts_of_8(const int32_t* logits, const int16_t* key_ratio, const SoftmaxConstants& row) {
  int16x8_t narrowed;
  if constexpr (kNarrow == 0) {
    const int16x4_t low = vqmovn_s32(vrshlq_s32(vld1q_s32(logits), row.narrow));
    narrowed = vqmovn_high_s32(low, vrshlq_s32(vld1q_s32(logits + 4), row.narrow));
  } else {
    const int16x4_t low = vqrshrn_n_s32(vld1q_s32(logits), kNarrow);
    narrowed = vqrshrn_high_n_s32(low, vld1q_s32(logits + 4), kNarrow);
  }
  const int16x8_t u = vqrdmulhq_s16(narrowed, vld1q_s16(key_ratio));
  return vqrdmulhq_s16(vqshlq_s16(u, row.lshift), row.factor);
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

// Pass 1: t into scratch; returns its maximum over the visible keys.
template <int kNarrow>
static inline int32_t softmax_counts(const SoftmaxSpan& span, const int32_t* logits, const int16_t* key_ratio,
                                     const SoftmaxConstants& row, int16_t* scratch) {
  const int16x8_t lowest = vdupq_n_s16(-32768);
  int16x8_t maxima = lowest;
  const auto cut = [&](size_t first) {
    for (size_t j = first; j < first + kSoftmaxChunk; j += 8) {
      const int16x8_t t = counts_of_8<kNarrow>(logits + j, key_ratio + j, row);
      const int16x8_t visible = vbslq_s16(visible_of_8(j, span.begin, span.end), t, lowest);
      vst1q_s16(scratch + j, visible);
      maxima = vmaxq_s16(maxima, visible);
    }
  };
  if (span.cut_first()) cut(span.first);
  const int32_t* a = logits + span.full_begin;
  const int16_t* ratio = key_ratio + span.full_begin;
  int16_t* out = scratch + span.full_begin;
  for (size_t j = span.full_begin; j < span.full_end; j += kSoftmaxChunk) {
    const int16x8_t t0 = counts_of_8<kNarrow>(a, ratio, row), t1 = counts_of_8<kNarrow>(a + 8, ratio + 8, row);
    maxima = vmaxq_s16(maxima, vmaxq_s16(t0, t1));
    vst1q_s16(out, t0);
    vst1q_s16(out + 8, t1);
    a += kSoftmaxChunk;
    ratio += kSoftmaxChunk;
    out += kSoftmaxChunk;
  }
  if (span.cut_last()) cut(span.full_end);
  return vmaxvq_s16(maxima);
}

// Table indices of 16 keys.
static inline uint8x16_t softmax_indices(const int16_t* t, int16x8_t max) {
  const int16x8_t w0 = vqsubq_s16(vld1q_s16(t), max), w1 = vqsubq_s16(vld1q_s16(t + 8), max);
  const int16x8_t z0 = vsraq_n_s16(vsubq_s16(vdupq_n_s16(16), w0), w0, 5);
  const int16x8_t z1 = vsraq_n_s16(vsubq_s16(vdupq_n_s16(16), w1), w1, 5);
  const uint8x8_t low = vqshrn_n_u16(vreinterpretq_u16_s16(z0), 5);
  return vqshrn_high_n_u16(low, vreinterpretq_u16_s16(z1), 5);
}

// E' of 16 keys.
static inline uint8x16_t softmax_weigh(uint8x16_t e, const uint16_t* value_ratio) {
  const uint8x16_t zero = vdupq_n_u8(0);
  const uint16x8_t none = vreinterpretq_u16_u8(zero);
  const uint16x8_t low = vmulq_u16(vreinterpretq_u16_u8(vzip1q_u8(e, zero)), vld1q_u16(value_ratio));
  const uint16x8_t high = vmulq_u16(vreinterpretq_u16_u8(vzip2q_u8(e, zero)), vld1q_u16(value_ratio + 8));
  return vraddhn_high_u16(vraddhn_u16(low, none), high, none);
}

// Pass 2: E' into probs; returns the sum of E.
template <typename Sum>
static inline uint32_t softmax_weights(const SoftmaxSpan& span, const int16_t* scratch, const uint16_t* value_ratio,
                                       int16x8_t max, uint8_t* probs) {
  const uint8x16x2_t lut = {{vld1q_u8(kIndexSoftmaxLut), vld1q_u8(kIndexSoftmaxLut + 16)}};
  uint32x4_t sum = vdupq_n_u32(0);
  const auto lookup = [&](const int16_t* t) { return vqtbl2q_u8(lut, softmax_indices(t, max)); };
  const auto cut = [&](size_t j) {
    const uint8x8_t low = vmovn_u16(visible_of_8(j, span.begin, span.end));
    const uint8x8_t high = vmovn_u16(visible_of_8(j + 8, span.begin, span.end));
    const uint8x16_t e = vandq_u8(lookup(scratch + j), vcombine_u8(low, high));
    sum = Sum::add(sum, e);
    vst1q_u8(probs + j, softmax_weigh(e, value_ratio + j));
  };
  if (span.cut_first()) cut(span.first);
  const int16_t* t = scratch + span.full_begin;
  const uint16_t* ratio = value_ratio + span.full_begin;
  uint8_t* out = probs + span.full_begin;
  size_t j = span.full_begin;
  for (; j + 2 * kSoftmaxChunk <= span.full_end; j += 2 * kSoftmaxChunk) {
    const uint8x16_t e0 = lookup(t);
    const uint8x16_t e1 = lookup(t + kSoftmaxChunk);
    sum = Sum::add(Sum::add(sum, e0), e1);
    const uint8x16_t weight0 = softmax_weigh(e0, ratio), weight1 = softmax_weigh(e1, ratio + kSoftmaxChunk);
    vst1q_u8(out, weight0);
    vst1q_u8(out + kSoftmaxChunk, weight1);
    t += 2 * kSoftmaxChunk;
    ratio += 2 * kSoftmaxChunk;
    out += 2 * kSoftmaxChunk;
  }
  if (j < span.full_end) cut(j);  // a whole one: the mask is all ones
  if (span.cut_last()) cut(span.full_end);
  return vaddvq_u32(sum);
}

// kernel_table.h, IndexSoftmaxS32U8. Sum::add(sum, e) adds 16 E to the four lanes of sum in any order.
template <typename Sum>
static inline void index_softmax(size_t n, const int32_t* logits, const int16_t* key_ratio, const uint16_t* value_ratio,
                                 IndexSoftmaxRow* row, int16_t* scratch, uint8_t* probs) {
  const SoftmaxSpan span = softmax_span(row->begin, row->end);
  const SoftmaxConstants constants = {vdupq_n_s32(-row->narrow), vdupq_n_s16(static_cast<int16_t>(row->lshift)),
                                      vdupq_n_s16(row->factor)};
  const auto counts = [&](auto narrow) {
    return softmax_counts<decltype(narrow)::value>(span, logits, key_ratio, constants, scratch);
  };
  int32_t max = kNoMax;
  switch (span.last > 0 ? row->narrow : -1) {
    case -1:
      break;
    case 1:
      max = counts(Immediate<1>());
      break;
    case 2:
      max = counts(Immediate<2>());
      break;
    case 3:
      max = counts(Immediate<3>());
      break;
    case 4:
      max = counts(Immediate<4>());
      break;
    case 5:
      max = counts(Immediate<5>());
      break;
    case 6:
      max = counts(Immediate<6>());
      break;
    case 7:
      max = counts(Immediate<7>());
      break;
    default:
      max = counts(Immediate<0>());
      break;
  }
  if (max > row->max) row->max = max;

  const int16x8_t row_max = vdupq_n_s16(static_cast<int16_t>(row->max));
  for (size_t j = 0; j < span.first; j += kSoftmaxChunk) vst1q_u8(probs + j, vdupq_n_u8(0));
  row->sum = softmax_weights<Sum>(span, scratch, value_ratio, row_max, probs);
  for (size_t j = span.last; j < n; j += kSoftmaxChunk) vst1q_u8(probs + j, vdupq_n_u8(0));
}

}  // namespace intattention
