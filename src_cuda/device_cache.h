// The int8 KV cache on the device: all of max_len is taken at once, so that its addresses never change and a captured
// graph stays valid.
#pragma once

#include "device_buffer.h"
#include "kernels.h"

namespace intattention::cuda {

class DeviceCache {
 public:
  // Throws InvalidArgument, std::bad_alloc.
  DeviceCache(size_t n_layers, size_t n_kv_heads, size_t head_dim, size_t max_len);

  static size_t bytes_for(size_t n_layers, size_t n_kv_heads, size_t head_dim, size_t max_len);
  size_t length() const { return length_; }
  size_t max_len() const { return max_len_; }
  size_t n_layers() const { return n_layers_; }
  size_t n_kv_heads() const { return n_kv_heads_; }
  size_t head_dim() const { return head_dim_; }
  size_t capacity() const { return (max_len_ + kKeyBlock - 1) / kKeyBlock * kKeyBlock; }
  size_t nbytes() const { return bytes_for(n_layers_, n_kv_heads_, head_dim_, max_len_); }
  uint64_t id() const { return id_; }  // of no other cache of the process

  void set_length(size_t length) { length_ = length; }
  void truncate(size_t length);  // throws InvalidArgument if length > length()
  CacheView view(size_t layer) const;

 private:
  size_t n_layers_, n_kv_heads_, head_dim_, max_len_, length_ = 0;
  uint64_t id_;
  DeviceBuffer k_, v_, k_scale_, v_log_;
};

}  // namespace intattention::cuda
