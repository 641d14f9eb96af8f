// The small float steps between the linears: embedding, norm, SwiGLU, quantisation, argmax.
#include <cuda_fp16.h>

#include "device_math.cuh"
#include "kernels.h"
#include "launch.h"
#include "norm.cuh"

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
    if (at(s) >= pieces) continue;
    if (a.add != nullptr) hidden[at(s)] = x[s] = sum_of(x[s], add[s]);
    store_squares(a.n, at(s), x[s], squares);
  }
  __syncthreads();
  sum_squares(a.n, squares, lanes);
  __syncthreads();
  const float inverse = inverse_rms(a.n, lanes, a.eps);
#pragma unroll
  for (uint32_t s = 0; s < kPieces; ++s) {
    if (at(s) / kWarp * kWarp >= pieces) break;  // the whole warp
    quantize_group_by_4(normed(x[s], inverse, weight[s]), at(s) < pieces, offset / 4 + at(s), a.out);
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
  const size_t shared = squares_bytes(n);
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
