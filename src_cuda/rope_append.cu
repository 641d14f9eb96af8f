// From the output of qkv_proj to int8: bias, norm of the heads, scale, RoPE, centre, rotation, rounding; k and v go
// into the cache. A block per (head, token), a thread per channel.
#include "device_math.cuh"
#include "kernels.h"
#include "launch.h"

namespace intattention::cuda {
namespace {

struct RopeArgs {
  const float* qkv;
  QKVOptions options;
  RopeTable rope;
  CacheView cache;
  uint32_t heads, tokens;
  uint32_t rotation;
  int8_t* q;
  float* q_scale;
  StepState* state;
};

// RMSNorm of one head, in the 8 lanes of section 6.
__device__ inline float norm_head(uint32_t d, float* x, float* lanes, const float* weight, float eps) {
  const uint32_t i = threadIdx.x;
  if (i < 8) {
    float sum = 0.0f;
    for (uint32_t c = i; c < d; c += 8) {
      const float square = x[c] * x[c];
      sum = sum + square;
    }
    lanes[i] = sum;
  }
  __syncthreads();
  const float sum = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  const float inverse = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum, static_cast<float>(d)) + eps));
  return i < d ? (x[i] * inverse) * weight[i] : 0.0f;
}

// Element i of the rotated head x; cos and sin of its position.
__device__ inline float rope_element(const float* x, uint32_t i, uint32_t half, const float* cos, const float* sin) {
  if (i < half) return x[i] * cos[i] - x[i + half] * sin[i];
  if (i < 2 * half) return x[i] * cos[i - half] + x[i - half] * sin[i - half];
  return x[i];
}

__device__ inline int16_t log_scale(float v_scale) {
  const double floored = fmax(static_cast<double>(v_scale), 1e-25);
  return static_cast<int16_t>(rint(log(floored) * (1024.0 / 6.6)));
}

__global__ void rope_append_kernel(const RopeArgs a) {
  __shared__ float x[kMaxDeviceHeadDim], lanes[8];
  __shared__ uint32_t warp_max[kMaxDeviceHeadDim / kWarp];
  let_next_start();
  wait_for_previous();
  const uint32_t d = a.cache.head_dim, kv_heads = a.cache.kv_heads, group = a.heads / kv_heads, i = threadIdx.x;
  const uint32_t head = blockIdx.x, token = blockIdx.y;
  const bool is_q = head < a.heads, is_v = head >= a.heads + kv_heads, own = i < d;
  const uint32_t kv_head = is_q ? head / group : (head - a.heads) % kv_heads;
  const uint32_t position = static_cast<uint32_t>(a.state->position) + token;
  float value = own ? a.qkv[(static_cast<size_t>(token) * (a.heads + 2 * kv_heads) + head) * d + i] : 0.0f;
  if (own && a.options.bias != nullptr) value = value + a.options.bias[head * d + i];
  if (!is_v) {
    const float* norm = is_q ? a.options.q_norm : a.options.k_norm;
    if (norm != nullptr) {
      if (own) x[i] = value;
      __syncthreads();
      value = norm_head(d, x, lanes, norm, a.options.eps);
      __syncthreads();
    }
    if (own && a.options.qk_scale != nullptr) {
      const float scale = a.options.qk_scale[kv_head * d + i];
      value = is_q ? value * scale : __fdiv_rn(value, scale);
    }
    if (own) x[i] = value;
    __syncthreads();
    const size_t row = static_cast<size_t>(position) * a.rope.half;
    if (own) value = rope_element(x, i, a.rope.half, a.rope.cos + row, a.rope.sin + row);
    __syncthreads();
    if (own && !is_q && a.options.k_center != nullptr) value = value - a.options.k_center[kv_head * d + i];
  }
  if (own) x[i] = value;
  for (uint32_t half = 1; half < a.rotation; half *= 2) {
    __syncthreads();
    float next = 0.0f;
    if (own) next = i / half % 2 == 0 ? x[i] + x[i + half] : x[i - half] - x[i];
    __syncthreads();
    if (own) x[i] = next;
  }
  __syncthreads();
  value = own ? x[i] : 0.0f;
  const uint32_t in_warp = __reduce_max_sync(kAllLanes, magnitude_bits(value));
  if (i % kWarp == 0) warp_max[i / kWarp] = in_warp;
  __syncthreads();
  uint32_t largest = 0;
  for (uint32_t w = 0; w < blockDim.x / kWarp; ++w) largest = max(largest, warp_max[w]);
  float scale = scale_of(largest);
  const int8_t q8 = static_cast<int8_t>(quantized(value, scale));
  if (!(scale <= 3.402823466e38f)) {  // attention must not see NaN
    if (i == 0) atomicOr(&a.state->bad, kBadQkv);
    scale = 0.0f;
  }
  if (is_q) {
    const size_t row = (static_cast<size_t>(kv_head) * a.tokens + token) * group + head % group;
    if (own) a.q[row * d + i] = q8;
    if (i == 0) a.q_scale[row] = scale;
    return;
  }
  const uint32_t key = position % kKeyBlock;
  const size_t at = static_cast<size_t>(kv_head) * a.cache.capacity + position, block = (at - key) * d;
  if (is_v) {
    if (own) a.cache.v[block + (key / 16 * d + i) * 16 + key % 16] = q8;
    if (i == 0) a.cache.v_log[at] = log_scale(scale);
  } else {
    if (own) a.cache.k[block + (i / 16 * kKeyBlock + key) * 16 + i % 16] = q8;
    if (i == 0) a.cache.k_scale[at] = scale;
  }
}

}  // namespace

void rope_append(uint32_t tokens, uint32_t heads, const float* qkv, const QKVOptions& options, const RopeTable& rope,
                 const CacheView& cache, int8_t* q, float* q_scale, StepState* state, cudaStream_t stream) {
  const uint32_t d = cache.head_dim, rotation = d & (~d + 1);
  const RopeArgs args{qkv, options, rope, cache, heads, tokens, rotation, q, q_scale, state};
  launch("rope_append", rope_append_kernel, {heads + 2 * cache.kv_heads, tokens, (d + kWarp - 1) / kWarp * kWarp},
         stream, args);
}

}  // namespace intattention::cuda
