// RMSNorm and quantisation of a row by the threads of a block, each with some pieces of 4 neighbouring values
// (docs/numerics.md 6): what the kernel of its own (rows.cu) and the GEMVs (gemv_norm.cuh) share.
#pragma once

#include "device_math.cuh"
#include "kernels.h"

namespace intattention::cuda {

// Squares lie by lane of section 6, [8][stride]: a lane's sum is a chain of additions, and its operands come 4 at a
// time.
constexpr __host__ __device__ uint32_t lane_stride(uint32_t n) { return n / 8 + 4; }
constexpr size_t squares_bytes(uint32_t n) { return 8 * lane_stride(n) * sizeof(float); }

__device__ inline float4 sum_of(const float4& x, const float4& y) {
  return {x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w};
}

// Of 4 neighbouring values, which are piece i of the row.
__device__ inline void store_squares(uint32_t n, uint32_t i, const float4& x, float* squares) {
  const uint32_t stride = lane_stride(n);
  float* to = squares + i % 2 * 4 * stride + i / 2;
  to[0] = x.x * x.x, to[stride] = x.y * x.y, to[2 * stride] = x.z * x.z, to[3 * stride] = x.w * x.w;
}

// Thread l < 8 adds lane l in order.
__device__ inline void sum_squares(uint32_t n, const float* squares, float* lanes) {
  constexpr uint32_t kAhead = 8;
  if (threadIdx.x >= 8) return;
  const float4* own = reinterpret_cast<const float4*>(squares + threadIdx.x * lane_stride(n));
  float sum = 0.0f;
  float4 v[kAhead];
  const uint32_t pieces = n / 32;
#pragma unroll
  for (uint32_t u = 0; u < kAhead; ++u) v[u] = own[min(u, pieces - 1)];
  uint32_t i = 0;
  for (; i + kAhead <= pieces; i += kAhead)
#pragma unroll
    for (uint32_t u = 0; u < kAhead; ++u) {
      const float4 now = v[u];
      v[u] = own[min(i + kAhead + u, pieces - 1)];
      sum = sum + now.x, sum = sum + now.y, sum = sum + now.z, sum = sum + now.w;
    }
  for (; i < pieces; ++i) {
    const float4 now = own[i];
    sum = sum + now.x, sum = sum + now.y, sum = sum + now.z, sum = sum + now.w;
  }
  lanes[threadIdx.x] = sum;
}

__device__ inline float inverse_rms(uint32_t n, const float* lane, float eps) {
  const float sum = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum, static_cast<float>(n)) + eps));
}

__device__ inline float4 normed(const float4& x, float inverse, const float4& weight) {
  return {(x.x * inverse) * weight.x, (x.y * inverse) * weight.y, (x.z * inverse) * weight.z,
          (x.w * inverse) * weight.w};
}

// One group of 32 from 8 neighbouring threads, 4 values each; `piece`: which 4 of the whole array.
// Without out.sum the sum is not wanted.
__device__ inline void quantize_group_by_4(const float4& x, bool there, size_t piece, const DeviceRows& out) {
  uint32_t largest = max(max(magnitude_bits(x.x), magnitude_bits(x.y)), max(magnitude_bits(x.z), magnitude_bits(x.w)));
  for (int offset = 4; offset > 0; offset /= 2) largest = max(largest, __shfl_xor_sync(kAllLanes, largest, offset));
  const float scale = scale_of(largest);
  const int q[4] = {quantized(x.x, scale), quantized(x.y, scale), quantized(x.z, scale), quantized(x.w, scale)};
  int sum = (q[0] + q[1]) + (q[2] + q[3]);
  for (int offset = 4; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAllLanes, sum, offset);
  if (!there) return;
  reinterpret_cast<char4*>(out.q)[piece] = {static_cast<signed char>(q[0]), static_cast<signed char>(q[1]),
                                            static_cast<signed char>(q[2]), static_cast<signed char>(q[3])};
  if (piece % 8 != 0) return;
  out.scale[piece / 8] = activation_scale(scale);
  if (out.sum != nullptr) out.sum[piece / 8] = sum;
}

}  // namespace intattention::cuda
