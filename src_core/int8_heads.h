// What the comparison pipelines (softmax="paper" and "quant_only") share: int8 tensors with one scale each, row tiles
// over [head][token] arrays, and K and V packed for one call.
#pragma once

#include "attention.h"
#include "kv_cache.h"

namespace intattention {

// [n_heads][length][head_dim], row-major; x = data * scale.
struct Int8Heads {
  const int8_t* data;
  float scale;
};

// A row tile: `tokens` consecutive queries of one kv head's group of query heads, row = token * group + head, so that
// K and V are read once for all of them.
struct RowTile {
  size_t kv_head, first_token, tokens;
};

class RowTiles {
 public:
  // At most `rows` rows per tile, but at least one token.
  RowTiles(const AttentionShape& shape, size_t rows);

  size_t count() const { return shape_.n_kv_heads * per_head_; }
  size_t rows() const { return tokens_ * shape_.group(); }  // of the largest tile
  RowTile operator[](size_t index) const;

  // Rows of x, [n_heads][q_len][width], that row `row` of the tile stands for.
  size_t source_row(const RowTile& tile, size_t row) const;
  // The tile's query rows one after the other.
  void gather(const RowTile& tile, const int8_t* q, int8_t* rows) const;

 private:
  const AttentionShape shape_;
  size_t tokens_, per_head_;
};

// One layer of cache filled with k and v; scales are not stored. Throws std::bad_alloc, InvalidArgument.
KVCache pack_int8_heads(ThreadPool& pool, const AttentionShape& shape, const int8_t* k, const int8_t* v);

// Quantises n values with one scale for all (docs/numerics.md section 2); returns it, NaN if a value is NaN or Inf.
float quantize_tensor(ThreadPool& pool, size_t n, const float* x, int8_t* q);

// Throws InvalidArgument if a group is too large for a tile.
void check_group(const AttentionShape& shape);

}  // namespace intattention
