// The small float steps between the linears: embedding, norm, SwiGLU, quantisation, argmax.
#include <cuda_fp16.h>

#include "device_math.cuh"
#include "kernels.h"
#include "launch.h"

namespace intattention::cuda {
namespace {

constexpr uint32_t kRowThreads = 256;

// A thread per value. The next kernel may start only after the wait: so whatever runs after the embedding finds the
// state of the step (token, position) before its own wait.
__global__ void embed_kernel(WeightView w, const int32_t* ids, const StepState* state, float* hidden) {
  wait_for_previous();
  let_next_start();
  const uint32_t k = blockIdx.y * blockDim.x + threadIdx.x;
  if (k >= w.k) return;
  const uint32_t row = static_cast<uint32_t>(ids == nullptr ? state->token : ids[blockIdx.x]), r = row % kRowTile;
  const size_t quants = quant_bytes(w.format);
  const uint8_t* chunk =
      w.data + (static_cast<size_t>(row / kRowTile) * w.chunks + k / kChunkK) * chunk_bytes(w.format);
  const uint32_t g = k % kChunkK / kGroup, e = k % kGroup;
  const __half* scales = reinterpret_cast<const __half*>(chunk + kChunkGroups * quants) + r * kChunkGroups + g;
  const float d = __half2float(scales[0]);
  float y;
  if (w.format == WeightFormat::kW8G32) {
    y = d * static_cast<float>(static_cast<int8_t>(chunk[g * quants + e / 16 * 512 + r * 16 + e % 16]));
  } else {
    const uint32_t nibble = chunk[g * quants + r * 16 + e % 16] >> (e / 16 * 4) & 0x0f;
    const float minimum = w.format == WeightFormat::kW4G32A ? __half2float(scales[kRowTile * kChunkGroups]) : -8.0f * d;
    y = d * static_cast<float>(nibble ^ 8) + minimum;
  }
  hidden[static_cast<size_t>(blockIdx.x) * w.k + k] = y;
}

constexpr uint32_t kNormThreads = 512;  // leaves room for the GEMV that follows, whose weights are on their way then
constexpr uint32_t kNormPieces = kMaxDeviceHidden / 4 / kNormThreads;  // of 4 values of a thread

// Squares lie by lane of section 6, [8][stride]: a lane's sum is a chain of additions, and its operands come 4 at a
// time.
__device__ inline uint32_t lane_stride(uint32_t n) { return n / 8 + 4; }

// Thread l < 8 adds lane l in order.
__device__ void sum_squares(uint32_t n, const float* squares, float* lanes) {
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

__device__ float inverse_rms(uint32_t n, const float* lane, float eps) {
  const float sum = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum, static_cast<float>(n)) + eps));
}

// One group of 32 from 8 neighbouring threads, 4 values each; `piece`: which 4 of the whole array.
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
  out.sum[piece / 8] = sum;
}

struct NormArgs {
  uint32_t n;
  float* hidden;
  const float *add, *weight;
  float eps;
  DeviceRows out;
};

// A block per token; a thread has pieces of 4 neighbouring values, kPieces at most, all on their way at once.
template <uint32_t kPieces>
__global__ void __launch_bounds__(kNormThreads) norm_quantize_kernel(const NormArgs a) {
  extern __shared__ __align__(16) float squares[];
  __shared__ float lanes[8];
  const uint32_t pieces = a.n / 4;
  const size_t row = blockIdx.x, offset = row * a.n;
  const auto at = [](uint32_t s) { return threadIdx.x + s * kNormThreads; };
  float4 x[kPieces], weight[kPieces];
#pragma unroll
  for (uint32_t s = 0; s < kPieces; ++s)
    if (at(s) < pieces) weight[s] = reinterpret_cast<const float4*>(a.weight)[at(s)];
  let_next_start();
  wait_for_previous();
  float4* hidden = reinterpret_cast<float4*>(a.hidden + offset);
  float4 add[kPieces];
#pragma unroll
  for (uint32_t s = 0; s < kPieces; ++s) {
    x[s] = add[s] = float4{};
    if (at(s) >= pieces) continue;
    x[s] = hidden[at(s)];
    if (a.add != nullptr) add[s] = reinterpret_cast<const float4*>(a.add + offset)[at(s)];
  }
#pragma unroll
  for (uint32_t s = 0; s < kPieces; ++s) {
    const uint32_t i = at(s), stride = lane_stride(a.n);
    if (i >= pieces) continue;
    if (a.add != nullptr) {
      x[s] = {x[s].x + add[s].x, x[s].y + add[s].y, x[s].z + add[s].z, x[s].w + add[s].w};
      hidden[i] = x[s];
    }
    float* to = squares + i % 2 * 4 * stride + i / 2;
    to[0] = x[s].x * x[s].x, to[stride] = x[s].y * x[s].y;
    to[2 * stride] = x[s].z * x[s].z, to[3 * stride] = x[s].w * x[s].w;
  }
  __syncthreads();
  sum_squares(a.n, squares, lanes);
  __syncthreads();
  const float inverse = inverse_rms(a.n, lanes, a.eps);
#pragma unroll
  for (uint32_t s = 0; s < kPieces; ++s) {
    if (at(s) / kWarp * kWarp >= pieces) break;  // the whole warp
    const float4 y = {(x[s].x * inverse) * weight[s].x, (x[s].y * inverse) * weight[s].y,
                      (x[s].z * inverse) * weight[s].z, (x[s].w * inverse) * weight[s].w};
    quantize_group_by_4(y, at(s) < pieces, offset / 4 + at(s), a.out);
  }
}

// A warp per group of 32 of the whole array.
template <typename Value>
__device__ void quantize_groups(size_t groups, const DeviceRows& out, const Value& value) {
  const uint32_t lane = threadIdx.x % kWarp;
  const size_t g = blockIdx.x * static_cast<size_t>(blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (g < groups) quantize_group(value(g * kGroup + lane), lane, out.q + g * kGroup, out.scale + g, out.sum + g);
}

__global__ void quantize_kernel(size_t groups, const float* x, DeviceRows out) {
  let_next_start();
  wait_for_previous();
  quantize_groups(groups, out, [&](size_t i) { return x[i]; });
}

__global__ void swiglu_quantize_kernel(size_t groups, uint32_t n, const float* gate_up, bool interleaved,
                                       DeviceRows out) {
  let_next_start();
  wait_for_previous();
  quantize_groups(groups, out, [&](size_t i) {
    const size_t token = i / n, c = i % n, column = interleaved ? c / kRowTile * 2 * kRowTile + c % kRowTile : c;
    const float* gate = gate_up + token * 2 * n + column;
    return silu_times(gate[0], gate[interleaved ? kRowTile : n]);
  });
}

uint32_t blocks_for(size_t groups) {
  constexpr size_t kPerBlock = kRowThreads / kWarp;
  return static_cast<uint32_t>((groups + kPerBlock - 1) / kPerBlock);
}

// --- argmax ---

struct Best {
  float value;
  int32_t index;

  // The first of equal ones wins.
  __device__ void take(float v, int32_t i) {
    if (v > value || (v == value && i < index)) value = v, index = i;
  }
  __device__ void reduce_warp() {
    for (int offset = 16; offset > 0; offset /= 2) {
      const float v = __shfl_xor_sync(kAllLanes, value, offset);
      const int32_t i = __shfl_xor_sync(kAllLanes, index, offset);
      take(v, i);
    }
  }
  __device__ void reduce_block() {  // into warp 0
    __shared__ float values[kWarp];
    __shared__ int32_t indices[kWarp];
    const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    reduce_warp();
    if (lane == 0) values[warp] = value, indices[warp] = index;
    __syncthreads();
    if (warp != 0) return;
    *this = Best{-INFINITY, INT32_MAX};
    if (lane < blockDim.x / kWarp) take(values[lane], indices[lane]);
    reduce_warp();
  }
};

__global__ void argmax_blocks_kernel(const float* logits, uint32_t n, uint32_t limit, float* values, int32_t* indices,
                                     StepState* state) {
  let_next_start();
  wait_for_previous();
  Best best{-INFINITY, INT32_MAX};
  bool bad = false;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const float v = logits[i];
    bad = bad || !isfinite(v);
    if (i < limit) best.take(v, static_cast<int32_t>(i));
  }
  if (__any_sync(kAllLanes, bad) && threadIdx.x % kWarp == 0) atomicOr(&state->bad, kBadLogit);
  best.reduce_block();
  if (threadIdx.x == 0) values[blockIdx.x] = best.value, indices[blockIdx.x] = best.index;
}

__global__ void argmax_kernel(const float* values, const int32_t* indices, StepState* state, int32_t* ids,
                              uint32_t max_ids) {
  let_next_start();
  wait_for_previous();
  Best best{-INFINITY, INT32_MAX};
  for (uint32_t i = threadIdx.x; i < kArgmaxBlocks; i += kWarp) best.take(values[i], indices[i]);
  best.reduce_warp();
  if (threadIdx.x != 0) return;
  const int32_t step = state->step;
  const int32_t token = best.index == INT32_MAX ? 0 : best.index;  // nothing finite: kBadLogit is set
  if (ids != nullptr && static_cast<uint32_t>(step) < max_ids) ids[step] = token;
  state->token = token;
  state->step = step + 1;
  state->position += 1;
}

}  // namespace

void embed(const WeightView& weights, const int32_t* ids, const StepState* state, uint32_t tokens, float* hidden,
           cudaStream_t stream) {
  const uint32_t blocks = (weights.k + kRowThreads - 1) / kRowThreads;
  launch("embed", embed_kernel, {tokens, blocks, kRowThreads}, stream, weights, ids, state, hidden);
}

void norm_quantize(uint32_t tokens, uint32_t n, float* hidden, const float* add, const float* weight, float eps,
                   const DeviceRows& out, cudaStream_t stream) {
  const size_t shared = (n + 32) * sizeof(float);  // lane_stride
  const auto kernel = n <= 2 * 4 * kNormThreads ? norm_quantize_kernel<2> : norm_quantize_kernel<kNormPieces>;
  if (shared > (48u << 10))
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
          "norm_quantize");
  launch("norm_quantize", kernel, {tokens, 1, kNormThreads, shared}, stream,
         NormArgs{n, hidden, add, weight, eps, out});
}

void quantize_rows(uint32_t tokens, uint32_t n, const float* x, const DeviceRows& out, cudaStream_t stream) {
  const size_t groups = static_cast<size_t>(tokens) * (n / kGroup);
  launch("quantize_rows", quantize_kernel, {blocks_for(groups), 1, kRowThreads}, stream, groups, x, out);
}

void swiglu_quantize(uint32_t tokens, uint32_t n, const float* gate_up, bool interleaved, const DeviceRows& out,
                     cudaStream_t stream) {
  const size_t groups = static_cast<size_t>(tokens) * (n / kGroup);
  launch("swiglu_quantize", swiglu_quantize_kernel, {blocks_for(groups), 1, kRowThreads}, stream, groups, n, gate_up,
         interleaved, out);
}

void argmax(const float* logits, uint32_t n, uint32_t limit, float* value_scratch, int32_t* index_scratch,
            StepState* state, int32_t* ids, uint32_t max_ids, cudaStream_t stream) {
  launch("argmax", argmax_blocks_kernel, {kArgmaxBlocks, 1, 512}, stream, logits, n, limit, value_scratch,
         index_scratch, state);
  launch("argmax", argmax_kernel, {1, 1, kWarp}, stream, value_scratch, index_scratch, state, ids, max_ids);
}

}  // namespace intattention::cuda
