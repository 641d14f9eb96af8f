#include "device_cache.h"

#include <atomic>

namespace intattention::cuda {

DeviceCache::DeviceCache(size_t n_layers, size_t n_kv_heads, size_t head_dim, size_t max_len)
    : n_layers_(n_layers), n_kv_heads_(n_kv_heads), head_dim_(head_dim), max_len_(max_len) {
  static std::atomic<uint64_t> next{1};
  id_ = next.fetch_add(1);
  if (n_layers == 0 || n_kv_heads == 0 || max_len == 0 || max_len > (size_t{1} << 30))
    throw InvalidArgument(message("cuda cache: layers ", n_layers, ", kv heads ", n_kv_heads, ", max_len ", max_len,
                                  " must all be at least 1, max_len at most 2^30"));
  if (head_dim == 0 || head_dim % 16 != 0 || head_dim > kMaxDeviceHeadDim)
    throw InvalidArgument(
        message("cuda cache: head_dim ", head_dim, " must be a multiple of 16, at most ", kMaxDeviceHeadDim));
  const size_t rows = n_layers * n_kv_heads * capacity();
  k_ = DeviceBuffer(rows * head_dim);
  v_ = DeviceBuffer(rows * head_dim);
  k_scale_ = DeviceBuffer(rows * sizeof(float));
  v_log_ = DeviceBuffer(rows * sizeof(int16_t));
}

size_t DeviceCache::bytes_for(size_t n_layers, size_t n_kv_heads, size_t head_dim, size_t max_len) {
  const size_t capacity = (max_len + kKeyBlock - 1) / kKeyBlock * kKeyBlock;
  return n_layers * n_kv_heads * capacity * (2 * head_dim + sizeof(float) + sizeof(int16_t));
}

void DeviceCache::truncate(size_t length) {
  if (length > length_) throw InvalidArgument(message("cuda cache: truncate to ", length, " but it holds ", length_));
  length_ = length;
}

CacheView DeviceCache::view(size_t layer) const {
  const size_t first = layer * n_kv_heads_ * capacity();
  return {k_.as<int8_t>() + first * head_dim_, v_.as<int8_t>() + first * head_dim_, k_scale_.as<float>() + first,
          v_log_.as<int16_t>() + first,        static_cast<uint32_t>(capacity()),   static_cast<uint32_t>(n_kv_heads_),
          static_cast<uint32_t>(head_dim_)};
}

}  // namespace intattention::cuda
