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
__device__ inline float norm_head(uint32_t d, float* x, float* lanes, float weight, float eps) {
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
  return i < d ? (x[i] * inverse) * weight : 0.0f;
}

__device__ inline int16_t log_scale(float v_scale) {
  const double floored = fmax(static_cast<double>(v_scale), 1e-25);
  return static_cast<int16_t>(rint(log(floored) * (1024.0 / 6.6)));
}

// A thread's constants: fetched before the wait.
struct ChannelOptions {
  float bias = 0.0f, norm = 0.0f, scale = 1.0f, center = 0.0f, cos = 1.0f, sin = 0.0f;
};

__device__ inline ChannelOptions channel_options(const RopeArgs& a, uint32_t head, uint32_t position) {
  const uint32_t d = a.cache.head_dim, kv_heads = a.cache.kv_heads, i = threadIdx.x;
  const bool is_q = head < a.heads;
  ChannelOptions c;
  if (i >= d) return c;
  if (a.options.bias != nullptr) c.bias = a.options.bias[head * d + i];
  if (head >= a.heads + kv_heads) return c;  // v
  const uint32_t kv_head = is_q ? head / (a.heads / kv_heads) : head - a.heads;
  const float* norm = is_q ? a.options.q_norm : a.options.k_norm;
  if (norm != nullptr) c.norm = norm[i];
  if (a.options.qk_scale != nullptr) c.scale = a.options.qk_scale[kv_head * d + i];
  if (!is_q && a.options.k_center != nullptr) c.center = a.options.k_center[kv_head * d + i];
  if (i >= 2 * a.rope.half) return c;
  const size_t at = static_cast<size_t>(position) * a.rope.half + i % a.rope.half;
  c.cos = a.rope.cos[at];
  c.sin = a.rope.sin[at];
  return c;
}

__global__ void rope_append_kernel(const RopeArgs a) {
  __shared__ float x[kMaxDeviceHeadDim], lanes[8];
  __shared__ uint32_t warp_max[kMaxDeviceHeadDim / kWarp];
  const uint32_t d = a.cache.head_dim, kv_heads = a.cache.kv_heads, group = a.heads / kv_heads, i = threadIdx.x;
  const uint32_t head = blockIdx.x, token = blockIdx.y;
  const bool is_q = head < a.heads, is_v = head >= a.heads + kv_heads, own = i < d;
  const uint32_t kv_head = is_q ? head / group : (head - a.heads) % kv_heads;
  const uint32_t position = position_of(a.state) + token;
  const ChannelOptions c = channel_options(a, head, position);
  let_next_start();
  wait_for_previous();
  float value = own ? a.qkv[(static_cast<size_t>(token) * (a.heads + 2 * kv_heads) + head) * d + i] : 0.0f;
  if (own && a.options.bias != nullptr) value = value + c.bias;
  if (!is_v) {
    if ((is_q ? a.options.q_norm : a.options.k_norm) != nullptr) {
      if (own) x[i] = value;
      __syncthreads();
      value = norm_head(d, x, lanes, c.norm, a.options.eps);
      __syncthreads();
    }
    if (own && a.options.qk_scale != nullptr) value = is_q ? value * c.scale : __fdiv_rn(value, c.scale);
    if (own) x[i] = value;
    __syncthreads();
    const uint32_t half = a.rope.half;
    if (i < half)
      value = value * c.cos - x[i + half] * c.sin;
    else if (i < 2 * half)
      value = value * c.cos + x[i - half] * c.sin;
    __syncthreads();
    if (own && !is_q && a.options.k_center != nullptr) value = value - c.center;
  }
  value = rotate(value, a.rotation, x);
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
