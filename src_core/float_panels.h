// K and V of the float attention as panels of 16 columns (kernel_table.h), packed once per call and shared by all
// threads. As many KV heads at a time as fit into 32 MB, at least one.
//
//   one head:   block 0: K panels | V panels     block 1: ...        a block is kKeyBlock keys
//   K panel p:  keys 16p .. 16p+15,     [head_dim][16]
//   V panel c:  channels 16c .. 16c+15, [kKeyBlock][16]
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aligned_buffer.h"
#include "thread_pool.h"

namespace intattention {

enum class FloatStorage {
  kF32,
  kF16,         // float16 panels, float16 arithmetic
  kF16Widened,  // float16 panels, widened one by one to float32
};

class FloatPanels {
 public:
  FloatPanels(FloatStorage storage, size_t n_kv_heads, size_t kv_len, size_t head_dim, int threads);

  // Packs heads first .. first + count (count <= heads()) in place of the former ones.
  // k, v f32 [n_kv_heads][kv_len][head_dim]. Keys up to the next multiple of 16 are zero.
  void pack(ThreadPool& pool, size_t first, size_t count, const float* k, const float* v);

  FloatStorage storage() const { return storage_; }
  size_t heads() const { return heads_; }
  size_t blocks() const { return blocks_; }

  // Panels of a packed head's block from key `key` of the block on, a multiple of 16.
  const void* keys(size_t head, size_t block, size_t key) const { return at(head, block, key * d_); }
  const void* values(size_t head, size_t block, size_t key) const { return at(head, block, kv_elements_ + key * 16); }

 private:
  const void* at(size_t head, size_t block, size_t element) const {
    return packed_.data() + (((head - first_) * blocks_ + block) * 2 * kv_elements_ + element) * element_bytes_;
  }
  template <typename T>
  void pack_block(const T* k, const T* v, size_t keys, T* packed) const;

  FloatStorage storage_;
  size_t kv_len_, d_, blocks_, kv_elements_, element_bytes_, heads_, first_ = 0;
  AlignedBuffer packed_;
  std::vector<AlignedBuffer> narrowed_;  // per thread: one block of k or v rows in float16
};

}  // namespace intattention
