// Attention on tensors as a caller has them: any of four element types, strided; quantised into a KV cache and into
// the queries that attention() wants.
#pragma once

#include "attention.h"

namespace intattention {

enum class ElementType { kF32, kF16, kBF16, kS8 };

size_t element_bytes(ElementType type);

// [heads][length][head_dim]; strides in bytes. kS8: x = element * scale[head][token], scale_strides in bytes (0, 0: one
// scale for all).
struct HeadTensor {
  const void* data;
  ElementType type;
  size_t heads, length, head_dim;
  std::ptrdiff_t strides[3];
  const float* scale = nullptr;
  std::ptrdiff_t scale_strides[2] = {0, 0};

  static HeadTensor contiguous(const float* data, size_t heads, size_t length, size_t head_dim);

  // The vector as float32, in `room` [head_dim] unless it lies so already.
  const float* row(size_t head, size_t token, float* room) const;
};

// Throws InvalidArgument for shapes, masks or scales that attention() cannot have. Sets the position of query 0:
// causal kv_len - q_len, else 0.
AttentionShape checked_attention_shape(size_t n_heads, size_t n_kv_heads, size_t head_dim, size_t q_len, Mask mask,
                                       float scale);

// Rotates and quantises k and v and writes them to positions position .. position + k.length - 1 of a layer, which
// must be reserved; the length of the cache stays. Throws InvalidArgument if a vector holds NaN or Inf.
void write_heads(ThreadPool& pool, KVCache& cache, size_t layer, size_t position, const HeadTensor& k,
                 const HeadTensor& v);

// q quantised into [kv head][token][head of the group]. Throws InvalidArgument if a vector holds NaN or Inf.
struct GroupedQueries {
  AlignedBuffer q, scale;

  GroupedQueries(ThreadPool& pool, const HeadTensor& x, size_t n_kv_heads);
};

}  // namespace intattention
