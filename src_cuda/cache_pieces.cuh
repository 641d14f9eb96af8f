// What a block of threads has of a key block of the cache.
#pragma once

#include "device_math.cuh"
#include "kernels.h"

namespace intattention::cuda {

constexpr uint32_t kAttentionThreads = kKeyBlock;

// A thread's part of a key block: its key, and its channel of some pieces of 16 values (threads of a channel share
// them). What fits is fetched at once, before it is needed; past L1, which would keep what the newest key replaces.
struct CachePieces {
  static constexpr uint32_t kEarly = 8;
  const int8_t *k, *v;
  uint32_t keys, head_dim;  // keys: that some row sees
  uint32_t channel, first_piece, piece_step;
  uint4 key[kEarly], value[kEarly];
  float k_scale;
  int v_log;

  __device__ CachePieces(const CacheView& cache, uint32_t kv_head, uint32_t start, uint32_t key_count)
      : keys(key_count), head_dim(cache.head_dim) {
    const size_t offset = static_cast<size_t>(kv_head) * cache.capacity + start;
    k = cache.k + offset * head_dim, v = cache.v + offset * head_dim;
    const uint32_t j = threadIdx.x, slices = kAttentionThreads / head_dim;
    channel = j % head_dim, first_piece = j / head_dim, piece_step = slices;
    if (first_piece >= slices) first_piece = kKeyBlock;  // no work
    k_scale = j < keys ? __ldcg(cache.k_scale + offset + j) : 0.0f;
    v_log = j < keys ? __ldcg(cache.v_log + offset + j) : 0;
#pragma unroll
    for (uint32_t c = 0; c < kEarly; ++c) key[c] = j < keys && c < head_dim / 16 ? key_piece(c) : uint4{};
#pragma unroll
    for (uint32_t i = 0; i < kEarly; ++i) value[i] = has(piece(i)) ? value_piece(piece(i)) : uint4{};
  }
  // Once more what has changed if key `last` is new.
  __device__ void reload(const CacheView& cache, uint32_t kv_head, uint32_t start, uint32_t last) {
    const size_t offset = static_cast<size_t>(kv_head) * cache.capacity + start;
    if (threadIdx.x == last) {
      k_scale = __ldcg(cache.k_scale + offset + last);
      v_log = __ldcg(cache.v_log + offset + last);
#pragma unroll
      for (uint32_t c = 0; c < kEarly; ++c)
        if (c < head_dim / 16) key[c] = key_piece(c);
    }
#pragma unroll
    for (uint32_t i = 0; i < kEarly; ++i)
      if (piece(i) == last / 16) value[i] = value_piece(piece(i));
  }

  __device__ uint4 key_piece(uint32_t c) const {
    return __ldcg(reinterpret_cast<const uint4*>(k) + c * kKeyBlock + threadIdx.x);
  }
  __device__ uint32_t piece(uint32_t i) const { return first_piece + i * piece_step; }
  __device__ bool has(uint32_t piece) const { return piece * 16 < keys; }
  __device__ uint4 value_piece(uint32_t piece) const {
    return __ldcg(reinterpret_cast<const uint4*>(v) + piece * head_dim + channel);
  }
};

}  // namespace intattention::cuda
