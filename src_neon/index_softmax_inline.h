// The index softmax of one row of one key block, shared by the neon and the dotprod kernel, which differ in how
// they add up E and subtract the maximum. Everything is `static` and instantiated with a type of the including file:
// the header is compiled with several -march flags, and nothing may be merged across them.
//
// Two passes over the visible keys, 16 at a time (two registers of 8 s16; "x2" is per register):
//
//   pass 1   logits | SQRSHRN #n | x key_ratio  SQRDMULH | u -> scratch, SMAX
//            4 s32    4            x2                      x2
//   between  m = max(m, mulhrs(sat16(max u << e), factor)): both steps are monotonic, factor is never negative, so
//            the largest u gives the largest t, and pass 1 needs neither
//   pass 2   u | SQSHL #e | w = t - m: SQRDMLAH(-m, u, factor) | z = (w >> 5) - w | UQRSHRN #5 | TBL2 -> E | sum
//            2   x2, e > 0  x2                                   SSHR, SUB x2       x2           1           1 or 2
//            E | ZIP with 0 | 128 + E x value_ratio  MLA | UZP2: the high bytes are E'
//            1   2            x2                           1
//
//   registers, pass 1: 4 logits -> 2 s16, 2 ratios, maximum
//   registers, pass 2: e, factor, 2 of LUT, zero, ones, sum; 2 w -> 2 z -> 1 E -> 2 products; -m and 128 in memory
//
// SQRDMULH is (2*x*y + 2^15) >> 16 = mulhrs; it saturates only for -32768 squared, and its second operand is never
// negative here. SQRDMLAH is sat16((c * 2^16 + 2*x*y + 2^15) >> 16) = sat16(c + mulhrs(x, y)); every core with
// dotprod (Armv8.2) has it, being part of Armv8.1. SQRSHRN and SRSHL round with unlimited width, so INT32 extremes
// do not wrap. |t| <= 32767, so -m exists, and u = -32768 marks a hidden key.
//
// The index without a multiplication. With y = m - t = -w:
//   (31 y + 512) >> 10 = floor((y + 16 - y/32) / 32) = (y - ceil(y/32) + 16) >> 5 = ((w >> 5) - w + 16) >> 5
// since dropping a fraction before the division by 32 does not change its floor, and -ceil(y/32) = w >> 5; the 16 is
// the rounding of UQRSHRN. The clip of y to 1024 is left to the table: y >= 1024 gives index 31 (E = 0) or more,
// UQRSHRN saturates it at 255, and TBL2 answers 0 for every index above 31.
//
// Chunks that begin or end cuts take their own, masked copy of each step: hidden keys get u = -32768 in
// pass 1 (out of the maximum) and E = 0 in pass 2. Chunks outside are zero-filled.
//
// Bound on Cortex-A76 (V0 multiplies, V1 shifts, the rest on either), cycles per 16 keys:
//   pass 1: SQRDMULH 2 x 2 = 4 on V0; SQRSHRN 4 on V1; SMAX 2, STP 2 on either: 6.0
//   pass 2: SQRDMLAH 2 x 2 + MLA 2 x 2 = 8 on V0; SSHR 2 + UQRSHRN 2 (+ SQSHL 2) = 4 (6) on V1; SUB 2, TBL, UDOT,
//           ZIP 2, UZP2, half an ST1 of two registers = 8 on either: 10.0, and 11.0 with e > 0
// bench/mca: 6.4 and 11.1 (12.1 with e > 0). SQRDMLAH and MLA overwrite their first operand: reloading
// it takes an L pipe, which has room, where a copy takes a V pipe. The 16 bytes of E' are stored in pairs, as a
// store of two registers takes the V pipes no longer than one of a single register.
//
// Rejected:
// - SRSHL + SQXTN for every n: 10 instead of 4 on V1. Kept for n = 0 and n > 7, which the head dimensions up to 256
//   do not produce.
// - SQRDMULH by 992 for the index: V0 does 12 in pass 2 and the clip is one SMIN per register more.
// - t in pass 1, m - t in pass 2 (SQSUB): 2 more on either; SQSHL in pass 1: 8.7 instead of 6.8 there, for 2 copies
//   of pass 2 saved.
// - RADDHN x2 for E' after MUL: one more than MLA and UZP2.
// - USHLL for ZIP, to take from V0 what llvm-mca puts there: nothing at e = 0, 5 cycles per row lost with e > 0.
// - max(t0, t1) before the running maximum: SMAX waits for both, 6.8 instead of 6.4 in pass 1.
// - E' one step behind the look-up (software pipeline): 6 cycles per row won at e = 0, 14 lost with e > 0.
// - value_ratio as u8 with UMLAL: 3 instead of 7 instructions for E' (255 E + 255 stands in for 256 E), but the
//   bytes and the addends must be made once per block for many rows: a contract for many rows.
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

// kNarrow = 0: the shift is in narrow (any n, negated); otherwise it is the immediate kNarrow.
template <int kNarrow>
static inline int16x8_t scaled_8(const int32_t* logits, const int16_t* key_ratio, int32x4_t narrow) {
  int16x8_t narrowed;
  if constexpr (kNarrow == 0) {
    const int16x4_t low = vqmovn_s32(vrshlq_s32(vld1q_s32(logits), narrow));
    narrowed = vqmovn_high_s32(low, vrshlq_s32(vld1q_s32(logits + 4), narrow));
  } else {
    const int16x4_t low = vqrshrn_n_s32(vld1q_s32(logits), kNarrow);
    narrowed = vqrshrn_high_n_s32(low, vld1q_s32(logits + 4), kNarrow);
  }
  return vqrdmulhq_s16(narrowed, vld1q_s16(key_ratio));
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

// Pass 1: u into scratch; returns maxima of the visible keys in 8 lanes.
template <int kNarrow>
static inline int16x8_t softmax_scale(const SoftmaxSpan& span, const int32_t* logits, const int16_t* key_ratio,
                                      int32x4_t narrow, int16_t* scratch) {
  const int16x8_t lowest = vdupq_n_s16(-32768);
  int16x8_t maxima = lowest;
  const auto cut = [&](size_t first) {
    for (size_t j = first; j < first + kSoftmaxChunk; j += 8) {
      const int16x8_t u = scaled_8<kNarrow>(logits + j, key_ratio + j, narrow);
      const int16x8_t visible = vbslq_s16(visible_of_8(j, span.begin, span.end), u, lowest);
      vst1q_s16(scratch + j, visible);
      maxima = vmaxq_s16(maxima, visible);
    }
  };
  if (span.cut_first()) cut(span.first);
  const int32_t* a = logits + span.full_begin;
  const int16_t* ratio = key_ratio + span.full_begin;
  int16_t* out = scratch + span.full_begin;
  for (size_t j = span.full_begin; j < span.full_end; j += kSoftmaxChunk) {
    const int16x8_t u0 = scaled_8<kNarrow>(a, ratio, narrow), u1 = scaled_8<kNarrow>(a + 8, ratio + 8, narrow);
    maxima = vmaxq_s16(vmaxq_s16(maxima, u0), u1);
    vst1q_s16(out, u0);
    vst1q_s16(out + 8, u1);
    a += kSoftmaxChunk;
    ratio += kSoftmaxChunk;
    out += kSoftmaxChunk;
  }
  if (span.cut_last()) cut(span.full_end);
  return maxima;
}

// What pass 2 needs of the row; the two accumulators are read with softmax_reload.
struct SoftmaxWeights {
  int16x8_t minus_max;  // in each lane
  uint16x8_t half;      // 128
  int16x8_t lshift, factor;
};

// A load for every use (hence volatile), never a copy of a register.
template <typename Vector>
static inline Vector softmax_reload(const Vector& memory) {
  return *static_cast<const volatile Vector*>(&memory);
}

// Table indices of 16 keys; kShift = false is for e = 0.
template <typename Isa, bool kShift>
static inline uint8x16_t softmax_indices(const int16_t* u, const SoftmaxWeights& row) {
  const auto below = [&](const int16_t* p) {
    const int16x8_t x = kShift ? vqshlq_s16(vld1q_s16(p), row.lshift) : vld1q_s16(p);
    return Isa::multiply_add(softmax_reload(row.minus_max), x, row.factor);
  };
  const int16x8_t w0 = below(u), w1 = below(u + 8);
  const int16x8_t z0 = vsubq_s16(vshrq_n_s16(w0, 5), w0), z1 = vsubq_s16(vshrq_n_s16(w1, 5), w1);
  const uint8x8_t low = vqrshrn_n_u16(vreinterpretq_u16_s16(z0), 5);
  return vqrshrn_high_n_u16(low, vreinterpretq_u16_s16(z1), 5);
}

// E' of 16 keys.
static inline uint8x16_t softmax_weigh(uint8x16_t e, const uint16_t* value_ratio, const SoftmaxWeights& row) {
  const uint8x16_t zero = vdupq_n_u8(0);
  const uint16x8_t low =
      vmlaq_u16(softmax_reload(row.half), vreinterpretq_u16_u8(vzip1q_u8(e, zero)), vld1q_u16(value_ratio));
  const uint16x8_t high =
      vmlaq_u16(softmax_reload(row.half), vreinterpretq_u16_u8(vzip2q_u8(e, zero)), vld1q_u16(value_ratio + 8));
  return vuzp2q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high));
}

// Pass 2: E' into probs; returns the sum of E.
template <typename Isa, bool kShift>
static inline uint32_t softmax_weights(const SoftmaxSpan& span, const int16_t* scratch, const uint16_t* value_ratio,
                                       const SoftmaxWeights& row, uint8_t* probs) {
  const uint8x16x2_t lut = {{vld1q_u8(kIndexSoftmaxLut), vld1q_u8(kIndexSoftmaxLut + 16)}};
  uint32x4_t sum = vdupq_n_u32(0);
  const auto lookup = [&](const int16_t* u) { return vqtbl2q_u8(lut, softmax_indices<Isa, kShift>(u, row)); };
  const auto cut = [&](size_t j) {
    const uint8x8_t low = vmovn_u16(visible_of_8(j, span.begin, span.end));
    const uint8x8_t high = vmovn_u16(visible_of_8(j + 8, span.begin, span.end));
    const uint8x16_t e = vandq_u8(lookup(scratch + j), vcombine_u8(low, high));
    sum = Isa::add(sum, e);
    vst1q_u8(probs + j, softmax_weigh(e, value_ratio + j, row));
  };
  if (span.cut_first()) cut(span.first);
  const int16_t* u = scratch + span.full_begin;
  const uint16_t* ratio = value_ratio + span.full_begin;
  uint8_t* out = probs + span.full_begin;
  size_t j = span.full_begin;
  for (; j + 2 * kSoftmaxChunk <= span.full_end; j += 2 * kSoftmaxChunk) {
    const uint8x16_t e0 = lookup(u);
    const uint8x16_t e1 = lookup(u + kSoftmaxChunk);
    sum = Isa::add(Isa::add(sum, e0), e1);
    vst1q_u8_x2(out, {{softmax_weigh(e0, ratio, row), softmax_weigh(e1, ratio + kSoftmaxChunk, row)}});
    u += 2 * kSoftmaxChunk;
    ratio += 2 * kSoftmaxChunk;
    out += 2 * kSoftmaxChunk;
  }
  if (j < span.full_end) cut(j);  // a whole one: the mask is all ones
  if (span.cut_last()) cut(span.full_end);
  return vaddvq_u32(sum);
}

// Pass 1 with the row's n: as an immediate, where there is one.
static inline int16x8_t softmax_scale_any(int32_t n, const SoftmaxSpan& span, const int32_t* logits,
                                          const int16_t* key_ratio, int16_t* scratch) {
  const auto scale = [&](auto narrow) {
    return softmax_scale<decltype(narrow)::value>(span, logits, key_ratio, vdupq_n_s32(-n), scratch);
  };
  switch (n) {
    case 1:
      return scale(Immediate<1>());
    case 2:
      return scale(Immediate<2>());
    case 3:
      return scale(Immediate<3>());
    case 4:
      return scale(Immediate<4>());
    case 5:
      return scale(Immediate<5>());
    case 6:
      return scale(Immediate<6>());
    case 7:
      return scale(Immediate<7>());
    default:
      return scale(Immediate<0>());
  }
}

// kernel_table.h, IndexSoftmaxS32U8. Isa::add(sum, e) adds 16 E to the four lanes of sum in any order;
// Isa::multiply_add(c, x, y) is sat16(c + mulhrs(x, y)).
template <typename Isa>
static inline void index_softmax(size_t n, const int32_t* logits, const int16_t* key_ratio, const uint16_t* value_ratio,
                                 IndexSoftmaxRow* row, int16_t* scratch, uint8_t* probs) {
  const SoftmaxSpan span = softmax_span(row->begin, row->end);
  for (size_t j = 0; j < span.first; j += kSoftmaxChunk) vst1q_u8(probs + j, vdupq_n_u8(0));
  for (size_t j = span.last; j < n; j += kSoftmaxChunk) vst1q_u8(probs + j, vdupq_n_u8(0));
  row->sum = 0;
  if (span.last == 0) return;

  int16x8_t maxima = softmax_scale_any(row->narrow, span, logits, key_ratio, scratch);
  for (int i = 0; i < 3; ++i) maxima = vpmaxq_s16(maxima, maxima);

  const int16x8_t lshift = vdupq_n_s16(static_cast<int16_t>(row->lshift));
  const int16x8_t factor = vdupq_n_s16(row->factor);
  const int16x8_t before = vdupq_n_s16(static_cast<int16_t>(row->max > -32768 ? row->max : -32768));
  const int16x8_t max = vmaxq_s16(before, vqrdmulhq_s16(vqshlq_s16(maxima, lshift), factor));
  const SoftmaxWeights weights = {vnegq_s16(max), vdupq_n_u16(128), lshift, factor};
  row->max = vgetq_lane_s16(max, 0);
  row->sum = row->lshift > 0 ? softmax_weights<Isa, true>(span, scratch, value_ratio, weights, probs)
                             : softmax_weights<Isa, false>(span, scratch, value_ratio, weights, probs);
}

}  // namespace intattention
