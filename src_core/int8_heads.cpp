#include "int8_heads.h"

#include <algorithm>
#include <cstring>

#include "error.h"

namespace intattention {

RowTiles::RowTiles(const AttentionShape& shape, size_t rows)
    : shape_(shape),
      tokens_(std::min(std::max<size_t>(1, rows / shape.group()), shape.q_len)),
      per_head_((shape.q_len + tokens_ - 1) / tokens_) {}

RowTile RowTiles::operator[](size_t index) const {
  const size_t first = index % per_head_ * tokens_;
  return {index / per_head_, first, std::min(tokens_, shape_.q_len - first)};
}

size_t RowTiles::source_row(const RowTile& tile, size_t row) const {
  const size_t group = shape_.group(), head = tile.kv_head * group + row % group;
  return head * shape_.q_len + tile.first_token + row / group;
}

void RowTiles::gather(const RowTile& tile, const int8_t* q, int8_t* rows) const {
  const size_t d = shape_.head_dim;
  for (size_t row = 0; row < tile.tokens * shape_.group(); ++row)
    std::memcpy(rows + row * d, q + source_row(tile, row) * d, d);
}

KVCache pack_int8_heads(ThreadPool& pool, const AttentionShape& shape, const int8_t* k, const int8_t* v) {
  const size_t length = shape.mask.kv_len, d = shape.head_dim, blocks = (length + kKeyBlock - 1) / kKeyBlock;
  KVCache cache(1, shape.n_kv_heads, d, length);
  cache.reserve(length);
  static constexpr float no_scales[kKeyBlock] = {};  // one scale per tensor, kept by the caller
  pool.parallel_for(shape.n_kv_heads * blocks, [&](size_t item, int) {
    const size_t head = item / blocks, first = item % blocks * kKeyBlock;
    const size_t row = (head * length + first) * d;
    cache.write(0, head, first, std::min(kKeyBlock, length - first), k + row, no_scales, v + row, no_scales);
  });
  cache.set_length(length);
  return cache;
}

void check_group(const AttentionShape& shape) {
  constexpr size_t kMaxGroup = 256;
  if (shape.group() > kMaxGroup)
    throw InvalidArgument(message("attention: ", shape.group(), " query heads per kv head exceed ", kMaxGroup));
}

}  // namespace intattention
