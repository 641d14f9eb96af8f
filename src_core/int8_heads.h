// What the comparison pipelines (softmax="paper" and "quant_only") share: int8 tensors with one scale each, and
// K and V packed for one call.
#pragma once

#include "attention.h"
#include "attention_tile.h"
#include "kv_cache.h"

namespace intattention {

// [n_heads][length][head_dim], row-major; x = data * scale.
struct Int8Heads {
  const int8_t* data;
  float scale;
};

// The tile's query rows q [n_heads][q_len][head_dim] one after the other.
void gather_rows(const QueryTiling& tiles, const QueryTile& tile, size_t head_dim, const int8_t* q, int8_t* rows);

// One layer of cache filled with k and v; scales are not stored. Throws std::bad_alloc, InvalidArgument.
KVCache pack_int8_heads(ThreadPool& pool, const AttentionShape& shape, const int8_t* k, const int8_t* v);

// Quantises n values with one scale for all (docs/numerics.md section 2); returns it, NaN if a value is NaN or Inf.
float quantize_tensor(ThreadPool& pool, size_t n, const float* x, int8_t* q);

// Throws InvalidArgument if a group is too large for a tile.
void check_group(const AttentionShape& shape);

}  // namespace intattention
