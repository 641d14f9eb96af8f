#include "kv_cache.h"

#include <algorithm>
#include <cstring>

#include "dispatch.h"
#include "error.h"
#include "rotation.h"

namespace intattention {
namespace {

// 8 channels of `Inner` keys (rows of v, ldv apart), the keys of a channel side by side.
template <size_t Inner>
void interleave(const int8_t* v, size_t ldv, int8_t* out) {
  for (size_t c = 0; c < kTileRows; ++c)
    for (size_t key = 0; key < Inner; ++key) out[c * Inner + key] = v[key * ldv + c];
}

// 8 channels of one key to every inner-th byte.
void scatter_key(const int8_t* v, size_t inner, int8_t* out) {
  for (size_t c = 0; c < kTileRows; ++c) out[c * inner] = v[c];
}

}  // namespace

KVCache::KVCache(size_t n_layers, size_t n_kv_heads, size_t head_dim, size_t max_len)
    : n_layers_(n_layers),
      n_kv_heads_(n_kv_heads),
      head_dim_(head_dim),
      max_len_(max_len),
      inner_(active_table().attention_inner) {
  if (n_layers == 0 || n_kv_heads == 0 || max_len == 0)
    throw InvalidArgument(message("cache: layers ", n_layers, ", kv heads ", n_kv_heads, ", max_len ", max_len,
                                  " must all be at least 1"));
  if (head_dim == 0 || head_dim % 16 != 0 || head_dim > kMaxHeadDim)
    throw InvalidArgument(message("cache: head_dim ", head_dim, " must be a multiple of 16, at most ", kMaxHeadDim));
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

void KVCache::write(size_t layer, size_t head, size_t position, size_t count, const int8_t* k, const float* k_scale,
                    const int8_t* v, const float* v_scale) {
  int16_t v_log_scale[kKeyBlock];
  std::transform(v_scale, v_scale + count, v_log_scale, log_scale);
  write(layer, head, position, count, k, k_scale, v, v_log_scale);
}

void KVCache::write(size_t layer, size_t head, size_t position, size_t count, const int8_t* k, const float* k_scale,
                    const int8_t* v, const int16_t* v_log_scale) {
  const size_t d = head_dim_, first = position % kKeyBlock;
  int8_t* k_tiles = reinterpret_cast<int8_t*>(head_data(layer, head, position / kKeyBlock));
  int8_t* v_tiles = k_tiles + kKeyBlock * d;
  float* scales = reinterpret_cast<float*>(v_tiles + kKeyBlock * d);
  int16_t* log_scales = reinterpret_cast<int16_t*>(scales + kKeyBlock);
  std::copy_n(k_scale, count, scales + first);
  std::copy_n(v_log_scale, count, log_scales + first);
  const B8Layout k_layout{inner_, kTileRows * d}, v_layout{inner_, kTileRows * kKeyBlock};
  for (size_t i = 0; i < count; ++i)
    for (size_t c = 0; c < d; c += inner_)
      std::memcpy(k_tiles + b8_offset(k_layout, first + i, c), k + i * d + c, inner_);
  // V interleaves `inner` keys of a channel: whole groups at a time, single keys at the ends.
  for (size_t i = 0; i < count;) {
    const bool whole = (first + i) % inner_ == 0 && i + inner_ <= count;
    const auto whole_group = inner_ == 4 ? interleave<4> : interleave<8>;
    int8_t* tile = v_tiles + b8_offset(v_layout, 0, first + i);
    for (size_t c = 0; c < d; c += kTileRows, tile += v_layout.tile_stride)
      whole ? whole_group(v + i * d + c, d, tile) : scatter_key(v + i * d + c, inner_, tile);
    i += whole ? inner_ : 1;
  }
}

void KVCache::read(size_t layer, size_t head, size_t position, size_t count, int8_t* k, float* k_scale, int8_t* v,
                   int16_t* v_log_scale) const {
  const size_t d = head_dim_;
  const B8Layout k_layout{inner_, kTileRows * d}, v_layout{inner_, kTileRows * kKeyBlock};
  for (size_t i = 0; i < count; ++i) {
    const size_t key = (position + i) % kKeyBlock;
    const KVBlock from = block(layer, head, (position + i) / kKeyBlock);
    for (size_t c = 0; c < d; ++c) {
      k[i * d + c] = from.k[b8_offset(k_layout, key, c)];
      v[i * d + c] = from.v[b8_offset(v_layout, c, key)];
    }
    k_scale[i] = from.k_scale[key];
    v_log_scale[i] = from.v_log_scale[key];
  }
}

void KVCache::set_length(size_t length) {
  for (size_t index = length_ / kKeyBlock; index < length / kKeyBlock; ++index)
    for (size_t layer = 0; layer < n_layers_; ++layer)
      for (size_t head = 0; head < n_kv_heads_; ++head) {
        const KVBlock kv = block(layer, head, index);
        uint8_t* memory = head_data(layer, head, index) + scales_offset();
        (new (memory) BlockScales)->extend_to(kKeyBlock, kv.k_scale, kv.v_log_scale);
      }
  length_ = length;
}

void KVCache::truncate(size_t length) {
  if (length > length_) throw InvalidArgument(message("cache: truncate to ", length, " but it holds ", length_));
  length_ = length;
  blocks_.resize((length + kKeyBlock - 1) / kKeyBlock);
}

KVBlock KVCache::block(size_t layer, size_t head, size_t index) const {
  const uint8_t* memory = head_data(layer, head, index);
  const int8_t* k = reinterpret_cast<const int8_t*>(memory);
  const float* k_scale = reinterpret_cast<const float*>(k + 2 * kKeyBlock * head_dim_);
  const bool full = index < length_ / kKeyBlock;
  return {k, k + kKeyBlock * head_dim_, k_scale, reinterpret_cast<const int16_t*>(k_scale + kKeyBlock),
          full ? reinterpret_cast<const BlockScales*>(memory + scales_offset()) : nullptr};
}

}  // namespace intattention
