// Rows of a KV cache outside of it, in an order that no table's layout shapes: what a session file holds.
#pragma once

#include <vector>

#include "kv_cache.h"

namespace intattention {

// `count` rows of all KV heads of one layer.
struct LayerRows {
  const int8_t* k;             // [n_kv_heads][count][head_dim], -127 .. 127
  const float* k_scale;        // [n_kv_heads][count], finite and >= 0
  const int8_t* v;             // as k
  const int16_t* v_log_scale;  // [n_kv_heads][count], what log_scale() can give
};

// Appends `count` rows per layer. Nothing in them is trusted. Throws InvalidArgument for values that no cache
// holds, ContextOverflow or std::bad_alloc; the cache is then as it was.
void append_rows(KVCache& cache, const std::vector<LayerRows>& layers, size_t count);

// Rows [0, count) of one layer, as LayerRows describes them. Throws InvalidArgument if the cache has fewer, or no such
// layer.
void read_rows(const KVCache& cache, size_t layer, size_t count, int8_t* k, float* k_scale, int8_t* v,
               int16_t* v_log_scale);

}  // namespace intattention
