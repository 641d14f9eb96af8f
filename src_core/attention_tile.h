// What every tiled attention shares: the query tiles of a KV head, and the row state of an online softmax.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "attention.h"
#include "kernel_table.h"

namespace intattention {

// `tokens` consecutive queries of one KV head's group of query heads; row = token * group + head of the group.
// K and V are read once for all of them.
struct QueryTile {
  size_t kv_head, first_token, tokens;
};

// All tiles of a call: as many whole tokens as fit into `target_rows`, at least one; tiles of a KV head lie together.
class QueryTiling {
 public:
  QueryTiling(const AttentionShape& shape, size_t target_rows)
      : group_(shape.group()),
        q_len_(shape.q_len),
        n_kv_heads_(shape.n_kv_heads),
        tokens_(std::min(std::max<size_t>(1, target_rows / group_), q_len_)) {}

  size_t count() const { return n_kv_heads_ * per_head(); }
  size_t per_head() const { return (q_len_ + tokens_ - 1) / tokens_; }
  size_t rows() const { return tokens_ * group_; }  // of the largest tile
  size_t rows(const QueryTile& tile) const { return tile.tokens * group_; }
  QueryTile operator[](size_t index) const {
    const size_t first = index % per_head() * tokens_;
    return {index / per_head(), first, std::min(tokens_, q_len_ - first)};
  }
  // Which row of a [n_heads][q_len] array the tile's row stands for.
  size_t source_row(const QueryTile& tile, size_t row) const {
    return (tile.kv_head * group_ + row % group_) * q_len_ + tile.first_token + row / group_;
  }

 private:
  size_t group_, q_len_, n_kv_heads_, tokens_;
};

constexpr int32_t no_max(int32_t) { return kNoMax; }
constexpr float no_max(float) { return kNoLogit; }

// Running maximum, sum and unnormalised output of the rows of a tile. A row that saw no key has max no_max().
template <typename Max>
struct RowStates {
  static_assert(sizeof(Max) == sizeof(float), "max shares the float buffer");
  size_t rows, head_dim;
  Max* max;    // [rows]
  float* sum;  // [rows]
  float* out;  // [rows][head_dim]

  static size_t floats(size_t rows, size_t head_dim) { return rows * (head_dim + 2); }
  static RowStates at(float* memory, size_t rows, size_t head_dim) {
    return {rows, head_dim, reinterpret_cast<Max*>(memory), memory + rows, memory + 2 * rows};
  }

  void clear() const {
    std::fill_n(max, rows, no_max(Max()));
    std::fill_n(sum, rows, 0.0f);
    std::fill_n(out, rows * head_dim, 0.0f);
  }

  // Merges a later key range into this one; decay(from, to) is the factor of sums taken at maximum `from`.
  template <typename Decay>
  void add(const RowStates& part, const Decay& decay) const {
    for (size_t row = 0; row < part.rows; ++row) {
      if (part.max[row] == no_max(Max())) continue;
      const Max new_max = std::max(max[row], part.max[row]);
      const float a = decay(max[row], new_max), b = decay(part.max[row], new_max);
      max[row] = new_max;
      sum[row] = sum[row] * a + part.sum[row] * b;
      float* to = out + row * head_dim;
      const float* from = part.out + row * head_dim;
      for (size_t c = 0; c < head_dim; ++c) to[c] = to[c] * a + from[c] * b;
    }
  }
};

// Ranges of kKeyRange keys that a call walks.
inline size_t key_ranges(const Mask& mask) { return (mask.kv_len + kKeyRange - 1) / kKeyRange; }

// Calls walk(block) for the key blocks of a range.
template <typename Walk>
void for_blocks_of_range(const Mask& mask, size_t range, const Walk& walk) {
  constexpr size_t kBlocksPerRange = kKeyRange / kKeyBlock;
  const size_t blocks = (mask.kv_len + kKeyBlock - 1) / kKeyBlock;
  for (size_t index = range * kBlocksPerRange; index < std::min((range + 1) * kBlocksPerRange, blocks); ++index)
    walk(index);
}

}  // namespace intattention
