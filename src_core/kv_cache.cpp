#include "kv_cache.h"

#include <cstring>

#include "dispatch.h"
#include "error.h"

namespace intattention {

KVCache::KVCache(size_t n_layers, size_t n_kv_heads, size_t head_dim, size_t max_len)
    : n_layers_(n_layers),
      n_kv_heads_(n_kv_heads),
      head_dim_(head_dim),
      max_len_(max_len),
      inner_(active_table().attention_inner) {
  if (n_layers == 0 || n_kv_heads == 0 || max_len == 0)
    throw InvalidArgument(message("cache: layers ", n_layers, ", kv heads ", n_kv_heads, ", max_len ", max_len,
                                  " must all be at least 1"));
  if (head_dim == 0 || head_dim % 16 != 0 || head_dim > 1024)
    throw InvalidArgument(message("cache: head_dim ", head_dim, " must be a multiple of 16, at most 1024"));
  constexpr size_t kMaxHeads = size_t{1} << 20, kMaxLength = size_t{1} << 31;
  if (n_layers > kMaxHeads || n_kv_heads > kMaxHeads || max_len > kMaxLength)
    throw InvalidArgument(message("cache: layers ", n_layers, ", kv heads ", n_kv_heads, " or max_len ", max_len,
                                  " is absurd (limits ", kMaxHeads, ", ", kMaxHeads, ", ", kMaxLength, ")"));
}

size_t KVCache::bytes_for(size_t length) const { return (length + kKeyBlock - 1) / kKeyBlock * block_bytes(); }

void KVCache::reserve(size_t length) {
  if (length > max_len_)
    throw ContextOverflow(message("context overflow: ", length_, " tokens in the cache and ", length - length_,
                                  " new ones exceed the limit of ", max_len_));
  const size_t needed = (length + kKeyBlock - 1) / kKeyBlock;
  std::vector<std::shared_ptr<AlignedBuffer>> blocks = blocks_;
  const size_t first = length_ / kKeyBlock;  // the block the next row goes into
  for (size_t i = first; i < blocks.size() && i < needed; ++i) {
    // blocks_ and the local copy hold one reference each
    if (blocks[i].use_count() > 2) {
      auto own = std::make_shared<AlignedBuffer>(block_bytes());
      std::memcpy(own->data(), blocks[i]->data(), block_bytes());
      blocks[i] = std::move(own);
    }
  }
  while (blocks.size() < needed) blocks.push_back(std::make_shared<AlignedBuffer>(block_bytes()));
  blocks_ = std::move(blocks);
}

void KVCache::write(size_t layer, size_t head, size_t position, const int8_t* k, float k_scale, const int8_t* v,
                    float v_scale) {
  int8_t* k_tiles = reinterpret_cast<int8_t*>(head_data(layer, head, position / kKeyBlock));
  int8_t* v_tiles = k_tiles + kKeyBlock * head_dim_;
  float* k_scales = reinterpret_cast<float*>(v_tiles + kKeyBlock * head_dim_);
  const size_t row = position % kKeyBlock;
  const B8Layout k_layout{inner_, kTileRows * head_dim_}, v_layout{inner_, kTileRows * kKeyBlock};
  for (size_t c = 0; c < head_dim_; c += inner_) std::memcpy(k_tiles + b8_offset(k_layout, row, c), k + c, inner_);
  for (size_t c = 0; c < head_dim_; ++c) v_tiles[b8_offset(v_layout, c, row)] = v[c];
  k_scales[row] = k_scale;
  k_scales[kKeyBlock + row] = v_scale;
}

void KVCache::set_length(size_t length) {
  for (size_t index = length_ / kKeyBlock; index < length / kKeyBlock; ++index)
    for (size_t layer = 0; layer < n_layers_; ++layer)
      for (size_t head = 0; head < n_kv_heads_; ++head) {
        uint8_t* scales = head_data(layer, head, index) + 2 * kKeyBlock * head_dim_;
        const float* k_scale = reinterpret_cast<const float*>(scales);
        BlockRatios* ratios = new (scales + 2 * kKeyBlock * sizeof(float)) BlockRatios;
        ratios->extend_to(kKeyBlock, k_scale, k_scale + kKeyBlock);
      }
  length_ = length;
}

void KVCache::truncate(size_t length) {
  if (length > length_) throw InvalidArgument(message("cache: truncate to ", length, " but it holds ", length_));
  length_ = length;
  blocks_.resize((length + kKeyBlock - 1) / kKeyBlock);
}

KVBlock KVCache::block(size_t layer, size_t head, size_t index) const {
  const int8_t* k = reinterpret_cast<const int8_t*>(head_data(layer, head, index));
  const int8_t* v = k + kKeyBlock * head_dim_;
  const float* scales = reinterpret_cast<const float*>(v + kKeyBlock * head_dim_);
  const bool full = index < length_ / kKeyBlock;
  return {k, v, scales, scales + kKeyBlock,
          full ? reinterpret_cast<const BlockRatios*>(scales + 2 * kKeyBlock) : nullptr};
}

}  // namespace intattention
