// Read-only bytes with whatever keeps them alive: an AlignedBuffer of ours, or somebody's memory-mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "aligned_buffer.h"

namespace intattention {

class SharedBytes {
 public:
  SharedBytes() = default;

  // Takes the buffer over.
  explicit SharedBytes(AlignedBuffer buffer) {
    const auto owned = std::make_shared<const AlignedBuffer>(std::move(buffer));
    data_ = std::shared_ptr<const uint8_t>(owned, owned->data());
    bytes_ = owned->size();
  }

  // Borrows `bytes` bytes at `data`; they must stay and keep their address as long as `owner` lives.
  SharedBytes(const uint8_t* data, size_t bytes, const std::shared_ptr<const void>& owner)
      : data_(owner, data), bytes_(bytes) {}

  const uint8_t* data() const { return data_.get(); }
  size_t size() const { return bytes_; }

 private:
  std::shared_ptr<const uint8_t> data_;
  size_t bytes_ = 0;
};

}  // namespace intattention
