// The contract between src_core and the kernel rooms: one struct of function pointers per ISA.
//
// Kernels are arithmetic only: raw pointers, sizes, strides. They do not allocate, throw, thread or
// print, and they assume what their comment says; the checks are in the callers (bindings, loader).
// This header is included by files compiled with -march flags, so it holds no inline code.
//
// Integer results are the same on every ISA. Float results are too, down to SwigluF32: each float formula
// is a fixed sequence of IEEE float32 operations (multiply-adds fused where it says fma and nowhere else), see
// docs/numerics.md section 6. The kernels of the float attention (section 9), at the end, are the rivals of the
// integer ones and as fast as the ISA allows: they may fuse, and their results differ between ISAs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace intattention {

// One feature is one bit; DOTPROD and I8MM never share one.
enum CpuFeature : uint32_t {
  kFeatureNeon = 1u << 0,
  kFeatureDotprod = 1u << 1,
  kFeatureI8mm = 1u << 2,
  kFeatureFp16 = 1u << 3,
  kFeatureAvx2 = 1u << 8,
  kFeatureF16c = 1u << 9,
  kFeatureAvx512Vnni = 1u << 10,  // with AVX512 F, BW and VL
  kFeatureAvxVnni = 1u << 11,
  kFeatureFma = 1u << 12,
  kFeatureAvx512F = 1u << 13,
};

// Keys per block of the cache format, and keys per range of the split-KV walk (docs/numerics.md 5).
constexpr size_t kKeyBlock = 256;
constexpr size_t kKeyRange = 1024;

// Consecutive k along which a linear's weights and activations share one scale.
constexpr size_t kGroup = 32;

// Rows of B that one packed tile interleaves (packing.h draws it).
constexpr size_t kTileRows = 8;

// C[m][n] = sum over k of A[m][k] * B[n][k], exact in s32.
//   a         row-major, lda elements between rows; any int8 value
//   b_packed  tiles of kTileRows rows, `inner` bytes of k interleaved (packing.h); b_stride bytes
//             between tiles; rows past n are zero
//   c         row-major, ldc elements between rows; ceil(n / 8) * 8 columns are written
//   k         a multiple of the table's inner, at most 65536 (s32 cannot overflow below 131072)
using GemmS8S8S32 = void (*)(size_t m, size_t n, size_t k, const int8_t* a, size_t lda, const int8_t* b_packed,
                             size_t b_stride, int32_t* c, size_t ldc);

// The same with an unsigned left operand: E' (u8) x V (s8).
using GemmU8S8S32 = void (*)(size_t m, size_t n, size_t k, const uint8_t* a, size_t lda, const int8_t* b_packed,
                             size_t b_stride, int32_t* c, size_t ldc);

// One row of one key block of the index softmax: what goes in and what comes out.
struct IndexSoftmaxRow {
  uint32_t begin, end;  // visible keys of the block: begin <= j < end <= n
  int32_t narrow;       // n of the rounding narrow, 0..15
  int32_t lshift;       // e of the saturating left shift, 0..15
  int16_t factor;       // Q15 row factor, 0..32767
  int32_t max;   // in: running max in counts (kNoMax before the first key); out: the block's own (kNoMax if empty)
  uint32_t sum;  // out: sum of E' * weight over the visible keys
};
constexpr int32_t kNoMax = -(1 << 30);
// A block whose maximum lies further below the running one adds nothing (e^-13.2).
constexpr int32_t kDropCounts = 2048;

// What the index softmax knows of the n keys of a block; all arrays have n elements.
struct IndexSoftmaxKeys {
  const int16_t* key_ratio;  // 0..32767, Q15
  const int16_t* log_scale;  // ln of the scale of V in counts, -16384..16383
  // What E' counts in the row sum, 0..32767, in two halves: byte products are what dot product instructions do.
  const uint8_t *weight_low, *weight_high;
};

// docs/numerics.md section 3. For visible keys j of the row:
//   B = sat16((A[j] + (n ? 1 << (n-1) : 0)) >> n)                 rounding narrow
//   u = mulhrs(B, key_ratio[j])                                    (x*y + 2^14) >> 15
//   y = sat16(mulhrs(sat16(u << e), factor) + log_scale[j])        counts, 1024 = c = 6.6 nats
//   own = max_j y
//   E'= own + kDropCounts < max ? 0 : LUT[(min(own - y, 1024) * 63 + 512) >> 10]
// and sum += E' * (weight_low[j] + 256 * weight_high[j]), max = own; keys outside [begin, end) get E' = 0. probs[0..n)
// is written.
//   n            keys in the buffers, a multiple of 16, <= kKeyBlock
//   scratch      s16 [n], the kernel's own between its passes
using IndexSoftmaxS32U8 = void (*)(size_t n, const int32_t* logits, const IndexSoftmaxKeys* keys, IndexSoftmaxRow* row,
                                   int16_t* scratch, uint8_t* probs);

// Activations of a linear: s8 in groups of 32 along k, each with a scale (activations.h).
struct QuantizedRows {
  const int8_t* q;     // [m][k], values -127..127
  const float* scale;  // [m][k / 32], 0 .. 2^100, the last two bits of the mantissa 0
  const int32_t* sum;  // [m][k / 32]: sum of the group's q
};

// y[m][n], for each group g in order of k, from y = 0 (docs/numerics.md section 6):
//   w4g32   y = fma(d, sx * float(isum - 8*xsum), y)
//   w4g32a  y = fma(mn, sx * float(xsum), fma(d, sx * float(isum), y))       has_min
//   w8g32   y = fma(d, sx * float(isum), y)
// isum = sum over the group of w * q, exact in s32, w = nibble 0..15 or s8; d, mn are the weights' f16 scale and
// minimum as float32; sx, xsum the activations' scale and sum. Layouts in packing.h.
//   weights   first tile; n columns are written (the last tile may be partial)
//   y         row-major, ldy floats between rows; overwritten
using GemmW4A8 = void (*)(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                          float* y, size_t ldy);
using GemmW8A8 = void (*)(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, float* y,
                          size_t ldy);

// How linears turn s32 sums into floats: a sum that starts at the bits of 1.5 * 2^23 is, read as a float,
// 1.5 * 2^23 + sum, for |sum| < 2^22 (those of a group stay below 2^21). sx * sum is then one fused multiply-add,
// fma(that float, sx, -1.5 * 2^23 * sx), rounded once: the subtrahend is exact because 1.5 is 3/2 and sx has two bits
// to spare.
constexpr int32_t kSumStart = 0x4b400000;
constexpr float kSumStartValue = 12582912.0f;

// For each of n_groups consecutive groups of `group` floats (a multiple of 8):
//   s = absmax / 127; q = clamp(rne(x / s), -127, 127); s == 0 gives zeros
//   a group with NaN or Inf gives s = NaN and zeros, so that the caller can see it.
// sum (may be null) = sum of the group's q.
using QuantizeF32S8 = void (*)(size_t n_groups, size_t group, const float* x, int8_t* q, float* scale, int32_t* sum);

// y[i] = (x[i] * (1 / sqrt(mean(x^2) + eps))) * weight[i]; n a multiple of 8. The sum of squares runs
// in 8 lanes (lane l adds x[8i+l]^2 in order of i), then ((l0+l4)+(l2+l6)) + ((l1+l5)+(l3+l7)). y may be x.
using RmsNormF32 = void (*)(size_t n, const float* x, const float* weight, float eps, float* y);

// Rotates pairs (i, i + n/2) of one head vector in place: n a multiple of 16,
//   a' = a*cos[i] - b*sin[i];  b' = b*cos[i] + a*sin[i];  cos, sin float [n/2].
using RopeF32 = void (*)(size_t n, const float* cos, const float* sin, float* x);

// Walsh-Hadamard transform of each `size` consecutive of n floats, unnormalised: for half = 1, 2, 4, ... size / 2
//   (a, b) <- (a + b, a - b)   for all pairs of elements `half` apart
// size a power of two, at least 16, dividing n; y may be x.
using HadamardF32 = void (*)(size_t n, size_t size, const float* x, float* y);

// y[i] = (gate[i] / (1 + exp_f32(-gate[i]))) * up[i]; n a multiple of 8; exp_f32 in exp_f32.h.
using SwigluF32 = void (*)(size_t n, const float* gate, const float* up, float* y);

// out[i] = out[i] * decay + float(sum[i]) * scale; n a multiple of 8. The step between key blocks.
using AccumulateS32F32 = void (*)(size_t n, float decay, float scale, const int32_t* sum, float* out);
// One row of one key block of the float softmax around INT8 GEMMs (softmax="quant_only").
struct FloatSoftmaxRow {
  uint32_t begin, end;  // visible keys of the block: begin <= j < end <= n
  float factor;         // nats per unit of a logit, finite, >= 0
  int32_t max;          // in: running max of the logits (kNoMax before the first key); out: updated
  int32_t sum;          // out: sum of P over the visible keys
};

// docs/numerics.md section 8. For visible keys j of the row:
//   max = max(max_in, max_j A[j]);  P[j] = rne(127 * exp_f32(float(A[j] - max) * factor))
// and sum += P; keys outside [begin, end) get P = 0. probs[0..n) is written.
//   n  keys in the buffers, a multiple of 16; |A| < 2^29; exp_f32 in exp_f32.h
using SoftmaxS32S8 = void (*)(size_t n, const int32_t* logits, FloatSoftmaxRow* row, int8_t* probs);

// floor(31 * delta / c) or floor(31 * delta / c + 1/2) for 0 <= delta <= c, as one multiplication (paper_index.h):
//   ((((min(delta, limit) << lshift) * multiplier) >> 32) + half) >> shift
struct PaperIndex {
  int32_t limit;        // c, 1 .. 2^31 - 1
  int32_t lshift;       // 0 or 6
  uint32_t multiplier;  // 2^31 .. 2^32 - 1
  uint32_t half;        // 0, or 2^(shift - 1)
  int32_t shift;        // 1..31
};

// A whole row of the published IndexSoftmax (softmax="paper"), docs/numerics.md section 7:
//   max = max_j A[j];  E = LUT[index(max - A[j])];  sum = sum of E;  P[j] = rne(255 * E / sum)
// over the visible keys begin <= j < end; the others get P = 0. probs[0..n) is written. Returns sum.
//   n  keys in the buffers, a multiple of 16, at most 2^23; begin <= end <= n; max - A[j] <= 2^25
using PaperSoftmaxS32U8 = uint32_t (*)(size_t n, const int32_t* logits, size_t begin, size_t end,
                                       const PaperIndex* index, uint8_t* probs);
// --- float attention (docs/numerics.md section 9) ---

// Columns of a float panel. B[n][k] lies in panels of 16 columns, all 16 values of one k side by side:
//
//   n:  0 .. 15        panel 0 | B[0..15][0] | B[0..15][1] | ... | B[0..15][k-1] |
//   n: 16 .. 31        panel 1 | B[16..31][0] | ...                        b_stride elements between panels
//
// K: n = key, k = channel.  V: n = channel, k = key.
constexpr size_t kFloatPanel = 16;

// C[m][n] = (add ? C[m][n] : 0) + sum over k of A[m][k] * B[n][k].
//   n, k   multiples of 16;  lda, ldc elements between rows
using GemmF32F32F32 = void (*)(size_t m, size_t n, size_t k, const float* a, size_t lda, const float* b_packed,
                               size_t b_stride, bool add, float* c, size_t ldc);

// The same on float16 (bits in u16) with float16 multiply-adds: chains of at most kF16Chain of them, added in float32.
using GemmF16F16F32 = void (*)(size_t m, size_t n, size_t k, const uint16_t* a, size_t lda, const uint16_t* b_packed,
                               size_t b_stride, bool add, float* c, size_t ldc);
constexpr size_t kF16Chain = 64;

// One row of one key block of the float softmax.
struct SoftmaxRow {
  uint32_t begin, end;  // visible keys of the block: begin <= j < end <= n
  float scale;          // > 0
  float max;            // in: running maximum of the logits, unscaled (kNoLogit before the first key); out: updated
  float sum;            // out: sum of the probabilities
};
constexpr float kNoLogit = -3.402823466e38f;

// probs[j] = exp((logits[j] - max) * scale) for visible j, else 0. n a multiple of 16, <= kKeyBlock.
// probs may be the logits' own memory. Relative error: 1e-6, and below 2^-126 the result is anything from 0 to 2^-126.
// NaN among the visible logits gives NaN in sum; kNoLogit is not a logit.
using SoftmaxF32F32 = void (*)(size_t n, const float* logits, SoftmaxRow* row, float* probs);
// The same with exp and probabilities in float16: relative error 4e-3 down to 2^-14, absolute 2^-24 below.
using SoftmaxF32F16 = void (*)(size_t n, const float* logits, SoftmaxRow* row, uint16_t* probs);

// float32 <-> float16, rounded to nearest even; n a multiple of 16.
using NarrowF32F16 = void (*)(size_t n, const float* x, uint16_t* y);
using WidenF16F32 = void (*)(size_t n, const uint16_t* x, float* y);

struct KernelTable {
  const char* name;            // "portable", "avx2", "avx512vnni", "dotprod", ...
  uint32_t required_features;  // bits of CpuFeature
  uint32_t attention_inner;    // bytes of k interleaved in packed K and V: 4, or 8 for SMMLA and 64-byte VPDPBUSD
  GemmS8S8S32 gemm_s8s8s32;
  IndexSoftmaxS32U8 index_softmax_s32u8;
  GemmU8S8S32 gemm_u8s8s32;
  GemmW4A8 gemm_w4a8;
  GemmW8A8 gemm_w8a8;
  QuantizeF32S8 quantize_f32s8;
  RmsNormF32 rmsnorm_f32;
  RopeF32 rope_f32;
  HadamardF32 hadamard_f32;
  SwigluF32 swiglu_f32;
  AccumulateS32F32 accumulate_s32f32;
  SoftmaxS32S8 softmax_s32s8;
  PaperSoftmaxS32U8 paper_softmax_s32u8;
  GemmF32F32F32 gemm_f32f32f32;
  SoftmaxF32F32 softmax_f32f32;
  // float16 attention, null where there is none. Arithmetic in float16 takes narrow, gemm and softmax; storage alone
  // takes narrow and widen, the rest is float32.
  NarrowF32F16 narrow_f32f16;
  WidenF16F32 widen_f16f32;
  GemmF16F16F32 gemm_f16f16f32;
  SoftmaxF32F16 softmax_f32f16;
};

// LUT[i] = max(1, rne(255 * exp(-6.6 * i / 63))), and LUT[63] = 0; tests/test_index_softmax.py checks the formula.
extern const uint8_t kIndexSoftmaxLut[64];
// The published table: rne(255 * exp(-6.6 * i / 31)).
extern const uint8_t kPaperLut[32];

}  // namespace intattention
