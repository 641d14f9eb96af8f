// The scalar pieces of docs/numerics.md for device code. Files are compiled with -fmad=false: a*b + c is rounded twice,
// fmaf once, as on every ISA.
#pragma once

#include <cstdint>

#include "kernel_table.h"

namespace intattention::cuda {

constexpr float kNatsPerCount = static_cast<float>(6.6 / 1024.0);
constexpr unsigned kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// The sequence of src_core/exp_f32.h.
__device__ inline float exp_f32(float x) {
  constexpr float kLog2e = 1.44269504f, kLn2Hi = 0.693359375f, kLn2Lo = -2.12194440e-4f, kRound = 12582912.0f;
  x = x > -87.0f ? x : -87.0f;
  x = x < 88.0f ? x : 88.0f;
  const float n = (x * kLog2e + kRound) - kRound;
  float r = x - n * kLn2Hi;
  r = r - n * kLn2Lo;
  float p = 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * __int_as_float((static_cast<int>(n) + 127) << 23);
}

__device__ inline int sat16(int x) { return min(max(x, -32768), 32767); }
__device__ inline int mulhrs(int x, int y) { return (x * y + (1 << 14)) >> 15; }

// Of sums taken at maximum `from`, when the maximum is `to`.
__device__ inline float decay(int from, int to) {
  if (from == to) return 1.0f;
  return from == kNoMax ? 0.0f : exp_f32(static_cast<float>(from - to) * kNatsPerCount);
}

// s8 x s8 and u8 x s8 dot products of 4 bytes, added to c.
__device__ inline int dot4(uint32_t a, uint32_t b, int c) {
  return __dp4a(static_cast<int>(a), static_cast<int>(b), c);
}
__device__ inline int dot4_u8s8(uint32_t a, uint32_t b, int c) {
  int d;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

__device__ inline float silu_times(float gate, float up) { return (gate / (1.0f + exp_f32(-gate))) * up; }

// --- the symmetric quantiser (section 2) ---

// Bits of |x|: they order as numbers do, NaN and Inf above all others.
__device__ inline uint32_t magnitude_bits(float x) { return __float_as_uint(x) & 0x7fffffffu; }

// Scale of a group whose largest magnitude has these bits; NaN if it is not finite.
__device__ inline float scale_of(uint32_t max_bits) {
  return max_bits < 0x7f800000u ? __fdiv_rn(__uint_as_float(max_bits), 127.0f) : __int_as_float(0x7fc00000);
}

__device__ inline int quantized(float x, float s) {
  if (!(s > 0.0f)) return 0;
  float v = __fdiv_rn(x, s);
  v = v < 127.0f ? v : 127.0f;
  v = v > -127.0f ? v : -127.0f;
  return __float2int_rn(v);
}

// As activations.h: a scale beyond 2^100 is NaN, two bits are cleared.
__device__ inline float activation_scale(float s) {
  return s <= 0x1p100f ? __uint_as_float(__float_as_uint(s) & ~3u) : __int_as_float(0x7fc00000);
}

// One group of 32 activations, one per lane of a warp.
__device__ inline void quantize_group(float x, unsigned lane, int8_t* q, float* scale, int32_t* sum) {
  const float s = scale_of(__reduce_max_sync(kAllLanes, magnitude_bits(x)));
  const int value = quantized(x, s);
  const int total = __reduce_add_sync(kAllLanes, value);
  q[lane] = static_cast<int8_t>(value);
  if (lane == 0) {
    *scale = activation_scale(s);
    *sum = total;
  }
}

// The unnormalised Walsh-Hadamard transform of runs of `size` (a power of two) values, one per thread. All threads of
// the block take part; scratch: a float of each.
__device__ inline float rotate(float x, uint32_t size, float* scratch) {
  const uint32_t i = threadIdx.x;
  for (uint32_t half = 1; half < min(size, kWarp); half *= 2) {
    const float other = __shfl_xor_sync(kAllLanes, x, half);
    x = i & half ? other - x : x + other;
  }
  for (uint32_t half = kWarp; half < size; half *= 2) {
    scratch[i] = x;
    __syncthreads();
    const float other = scratch[i ^ half];
    __syncthreads();
    x = i & half ? other - x : x + other;
  }
  return x;
}

}  // namespace intattention::cuda
