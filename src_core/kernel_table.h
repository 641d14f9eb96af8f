// The contract between src_core and the kernel rooms: one struct of function pointers per ISA.
//
// Kernels are arithmetic only: raw pointers, sizes, strides. They do not allocate, throw, thread or
// print, and they assume what their comment says; the checks are in the callers (bindings, loader).
// This header is included by files compiled with -march flags, so it holds no inline code.
//
// Integer results are the same on every ISA. Float results are too: each float formula below is a
// fixed sequence of IEEE float32 operations (no fused multiply-add, fixed summation order), see
// docs/numerics.md section 6.
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
  int32_t max;          // in: running max in counts (kNoMax before the first key); out: updated
  uint32_t sum;         // out: sum of E over the visible keys
};
constexpr int32_t kNoMax = -(1 << 30);

// docs/numerics.md section 3. For visible keys j of the row:
//   B = sat16((A[j] + (n ? 1 << (n-1) : 0)) >> n)                 rounding narrow
//   u = mulhrs(B, key_ratio[j])                                    (x*y + 2^14) >> 15
//   t = mulhrs(sat16(u << e), factor)                              counts, 1024 = c = 6.6 nats
//   max = max(max_in, max_j t)
//   E = LUT[(min(max - t, 1024) * 31 + 512) >> 10]
//   E'= (E * value_ratio[j] + 128) >> 8
// and sum += E; keys outside [begin, end) get E' = 0. probs[0..n) is written.
//   n            keys in the buffers, a multiple of 16, <= kKeyBlock
//   key_ratio    s16 [n], 0..32767; value_ratio u16 [n], 0..256
//   scratch      s16 [n], for t
using IndexSoftmaxS32U8 = void (*)(size_t n, const int32_t* logits, const int16_t* key_ratio,
                                   const uint16_t* value_ratio, IndexSoftmaxRow* row, int16_t* scratch, uint8_t* probs);

// Activations of a linear: s8 in groups of 32 along k, each with a scale (QuantizeF32S8).
struct QuantizedRows {
  const int8_t* q;          // [m][k], values -127..127
  const float* scale;       // [m][k / 32]
  const float* scaled_sum;  // [m][k / 32]: scale * sum of the group's q
};

// y[m][n] = sum over groups g of  (d*sx) * float(isum) + mn*ssum   (w4), or (d*sx) * float(isum) (w8)
//   isum = sum over the group of w * q, exact in s32; d, mn are the weights' f16 scale and minimum
//   as float32; sx, ssum the activations' scale and scaled_sum. Groups are added in order of k.
// w4: w = nibble 0..15; has_min = false means mn = -8 * d. Layouts in packing.h.
//   weights   first tile; n columns are written (the last tile may be partial)
//   y         row-major, ldy floats between rows; overwritten
using GemmW4A8 = void (*)(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                          float* y, size_t ldy);
using GemmW8A8 = void (*)(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, float* y,
                          size_t ldy);

// For each of n_groups consecutive groups of `group` floats (a multiple of 8):
//   s = absmax / 127; q = clamp(rne(x / s), -127, 127); s == 0 gives zeros
//   a group with NaN or Inf gives s = NaN and zeros, so that the caller can see it.
// scaled_sum (may be null) = s * float(sum of q).
using QuantizeF32S8 = void (*)(size_t n_groups, size_t group, const float* x, int8_t* q, float* scale,
                               float* scaled_sum);

// y[i] = (x[i] * (1 / sqrt(mean(x^2) + eps))) * weight[i]; n a multiple of 8. The sum of squares runs
// in 8 lanes (lane l adds x[8i+l]^2 in order of i), then ((l0+l4)+(l2+l6)) + ((l1+l5)+(l3+l7)).
using RmsNormF32 = void (*)(size_t n, const float* x, const float* weight, float eps, float* y);

// Rotates pairs (i, i + n/2) of one head vector in place: n a multiple of 16,
//   a' = a*cos[i] - b*sin[i];  b' = b*cos[i] + a*sin[i];  cos, sin float [n/2].
using RopeF32 = void (*)(size_t n, const float* cos, const float* sin, float* x);

// y[i] = (gate[i] / (1 + exp_f32(-gate[i]))) * up[i]; n a multiple of 8; exp_f32 in exp_f32.h.
using SwigluF32 = void (*)(size_t n, const float* gate, const float* up, float* y);

struct KernelTable {
  const char* name;            // "portable", "avx2", "avxvnni", "avx512vnni", "neon", "dotprod", "i8mm"
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
  SwigluF32 swiglu_f32;
};

// LUT[i] = rne(255 * exp(-6.6 * i / 31)); checked against the formula in tests/test_index_softmax.py.
extern const uint8_t kIndexSoftmaxLut[32];

}  // namespace intattention
