// The int8 KV cache: append-only, paged in blocks of kKeyBlock = 256 tokens, kept in the layout that
// the attention kernels read (packing.h), with one scale per (token, kv head) for K and for V.
//
// A block holds, for each (layer, kv head), in this order:
//   K tiles   256 keys x head_dim       8 keys interleaved,     tile_stride 8 * head_dim
//   V tiles   head_dim x 256 keys       8 channels interleaved, tile_stride 8 * 256
//   s_k[256]                            float32
//   ln s_v[256]                         int16, counts (log_scale in index_scale.h)
//   BlockScales                         filled in when the block is full, for the index softmax
// so growth never copies and a row is written once. Forks share full blocks; a shared block is copied
// when it is about to be written.
//
// The interleave (4 or 8 bytes of k) is that of the table active at construction; attention refuses a
// cache of another layout.
#pragma once

#include <memory>
#include <vector>

#include "aligned_buffer.h"
#include "index_scale.h"
#include "packing.h"

namespace intattention {

// One key block of one (layer, kv head).
struct KVBlock {
  const int8_t* k;
  const int8_t* v;
  const float* k_scale;
  const int16_t* v_log_scale;
  const BlockScales* scales;  // null unless the block was full at the last set_length()
};

class KVCache {
 public:
  // Takes no memory for tokens yet. Throws InvalidArgument.
  KVCache(size_t n_layers, size_t n_kv_heads, size_t head_dim, size_t max_len);

  size_t length() const { return length_; }
  size_t max_len() const { return max_len_; }
  size_t n_layers() const { return n_layers_; }
  size_t n_kv_heads() const { return n_kv_heads_; }
  size_t head_dim() const { return head_dim_; }
  uint32_t inner() const { return inner_; }
  size_t nbytes() const { return blocks_.size() * block_bytes(); }
  size_t bytes_for(size_t length) const;

  // Makes positions [length(), length) writable: allocates blocks and unshares the first one. Does not
  // change length(). Throws ContextOverflow or std::bad_alloc, leaving the cache as it was.
  void reserve(size_t length);

  // Stores `count` rows k, v [count][head_dim] from `position` on; they must be reserved and lie in one key block.
  // Different (layer, head) and different groups of 8 positions may be written from different threads.
  void write(size_t layer, size_t head, size_t position, size_t count, const int8_t* k, const float* k_scale,
             const int8_t* v, const float* v_scale);
  // The same for scales of V as the cache keeps them, which read() gives.
  void write(size_t layer, size_t head, size_t position, size_t count, const int8_t* k, const float* k_scale,
             const int8_t* v, const int16_t* v_log_scale);

  // Rows [position, position + count) as write() took them: k, v [count][head_dim].
  void read(size_t layer, size_t head, size_t position, size_t count, int8_t* k, float* k_scale, int8_t* v,
            int16_t* v_log_scale) const;

  void set_length(size_t length);  // after writing all layers of the new rows
  void truncate(size_t length);    // throws InvalidArgument if length > length()
  KVCache fork() const { return *this; }

  KVBlock block(size_t layer, size_t head, size_t index) const;

 private:
  size_t scales_offset() const { return kKeyBlock * (2 * head_dim_ + sizeof(float) + sizeof(int16_t)); }
  size_t head_bytes() const {
    const size_t bytes = scales_offset() + sizeof(BlockScales);
    return (bytes + AlignedBuffer::kAlignment - 1) / AlignedBuffer::kAlignment * AlignedBuffer::kAlignment;
  }
  uint8_t* head_data(size_t layer, size_t head, size_t index) const {
    return blocks_[index]->data() + head_offset(layer, head);
  }
  size_t block_bytes() const { return n_layers_ * n_kv_heads_ * head_bytes(); }
  size_t head_offset(size_t layer, size_t head) const { return (layer * n_kv_heads_ + head) * head_bytes(); }

  static_assert(sizeof(BlockScales) % alignof(BlockScales) == 0 && alignof(BlockScales) <= 16,
                "head_dim is a multiple of 16, so every part of a block stays aligned");

  size_t n_layers_, n_kv_heads_, head_dim_, max_len_, length_ = 0;
  uint32_t inner_;
  std::vector<std::shared_ptr<AlignedBuffer>> blocks_;
};

}  // namespace intattention
