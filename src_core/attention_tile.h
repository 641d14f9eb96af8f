// What every tiled attention shares: the query tiles of a KV head, and the row state of an online softmax in float.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernel_table.h"

namespace intattention {

// `tokens` consecutive queries of one KV head's group of query heads; row = token * group + head of the group.
// K and V are read once for all of them.
struct QueryTile {
  size_t first_token, tokens;
};

// The tiles of one KV head: as many whole tokens as fit into `target_rows`, at least one.
class QueryTiling {
 public:
  QueryTiling(size_t q_len, size_t group, size_t target_rows)
      : q_len_(q_len), tokens_(std::min(std::max<size_t>(1, target_rows / group), q_len)), rows_(tokens_ * group) {}

  size_t count() const { return (q_len_ + tokens_ - 1) / tokens_; }
  size_t rows() const { return rows_; }  // of the largest tile
  QueryTile tile(size_t index) const {
    const size_t first = index * tokens_;
    return {first, std::min(tokens_, q_len_ - first)};
  }

 private:
  size_t q_len_, tokens_, rows_;
};

// Running maximum, sum and unnormalised output of the rows of a tile; a row that saw no key has max kNoLogit.
struct FloatRowStates {
  size_t rows, head_dim;
  float *max, *sum;  // [rows]
  float* out;        // [rows][head_dim]

  static size_t floats(size_t rows, size_t head_dim) { return rows * (head_dim + 2); }
  static FloatRowStates at(float* memory, size_t rows, size_t head_dim) {
    return {rows, head_dim, memory, memory + rows, memory + 2 * rows};
  }
  void clear() const {
    std::fill_n(max, rows, kNoLogit);
    std::fill_n(sum, rows, 0.0f);
    std::fill_n(out, rows * head_dim, 0.0f);
  }
};

}  // namespace intattention
