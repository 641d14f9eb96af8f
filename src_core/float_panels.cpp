#include "float_panels.h"

#include <algorithm>
#include <cstring>

#include "dispatch.h"
#include "kernel_table.h"

namespace intattention {
namespace {

constexpr size_t kMaxPackedBytes = size_t{32} << 20;

// Rows of 16 keys side by side: out[c][r] = k[r][c]; rows past `keys` are zero.
template <typename T>
void transpose_panel(size_t keys, size_t d, const T* k, T* out) {
  if (keys < kFloatPanel) std::fill_n(out, d * kFloatPanel, T{0});
  if (keys >= kFloatPanel) {
    for (size_t c = 0; c < d; ++c)
      for (size_t r = 0; r < kFloatPanel; ++r) out[c * kFloatPanel + r] = k[r * d + c];
    return;
  }
  for (size_t r = 0; r < keys; ++r)
    for (size_t c = 0; c < d; ++c) out[c * kFloatPanel + r] = k[r * d + c];
}

}  // namespace

FloatPanels::FloatPanels(FloatStorage storage, size_t n_kv_heads, size_t kv_len, size_t head_dim, int threads)
    : storage_(storage),
      kv_len_(kv_len),
      d_(head_dim),
      blocks_((kv_len + kKeyBlock - 1) / kKeyBlock),
      kv_elements_(kKeyBlock * head_dim),
      element_bytes_(storage == FloatStorage::kF32 ? sizeof(float) : sizeof(uint16_t)) {
  const size_t head_bytes = blocks_ * 2 * kv_elements_ * element_bytes_;
  heads_ = std::min(n_kv_heads, std::max<size_t>(1, kMaxPackedBytes / head_bytes));
  packed_ = AlignedBuffer(heads_ * head_bytes);
  if (storage != FloatStorage::kF32)
    for (int worker = 0; worker < threads; ++worker) narrowed_.emplace_back(2 * kv_elements_ * sizeof(uint16_t));
}

template <typename T>
void FloatPanels::pack_block(const T* k, const T* v, size_t keys, T* packed) const {
  for (size_t j = 0; j < keys; j += kFloatPanel)
    transpose_panel(std::min(keys - j, kFloatPanel), d_, k + j * d_, packed + j * d_);
  T* values = packed + kv_elements_;
  for (size_t c = 0; c < d_; c += kFloatPanel, values += kFloatPanel * kKeyBlock) {
    for (size_t j = 0; j < keys; ++j) std::memcpy(values + j * kFloatPanel, v + j * d_ + c, kFloatPanel * sizeof(T));
    const size_t padded = (keys + kFloatPanel - 1) / kFloatPanel * kFloatPanel;
    std::fill_n(values + keys * kFloatPanel, (padded - keys) * kFloatPanel, T{0});
  }
}

void FloatPanels::pack(ThreadPool& pool, size_t first, size_t count, const float* k, const float* v) {
  first_ = first;
  const KernelTable& table = active_table();
  pool.parallel_for(count * blocks_, [&](size_t item, int worker) {
    const size_t block = item % blocks_, start = block * kKeyBlock, keys = std::min(kKeyBlock, kv_len_ - start);
    const size_t from = ((first + item / blocks_) * kv_len_ + start) * d_, to = item * 2 * kv_elements_;
    if (storage_ == FloatStorage::kF32) {
      pack_block(k + from, v + from, keys, packed_.as<float>() + to);
      return;
    }
    uint16_t* rows = narrowed_[static_cast<size_t>(worker)].as<uint16_t>();
    table.narrow_f32f16(keys * d_, k + from, rows);
    table.narrow_f32f16(keys * d_, v + from, rows + kv_elements_);
    pack_block(rows, rows + kv_elements_, keys, packed_.as<uint16_t>() + to);
  });
}

}  // namespace intattention
