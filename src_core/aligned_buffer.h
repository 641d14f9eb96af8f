// A zero-filled, 64-byte aligned, owned block of bytes. Throws std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace intattention {

class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 64;  // a cache line on every target

  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    data_.reset(static_cast<uint8_t*>(::operator new(bytes, std::align_val_t(kAlignment))));
    std::memset(data_.get(), 0, bytes);
  }

  uint8_t* data() { return data_.get(); }
  const uint8_t* data() const { return data_.get(); }
  size_t size() const { return bytes_; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(uint8_t* p) const { ::operator delete(p, std::align_val_t(kAlignment)); }
  };
  size_t bytes_ = 0;
  std::unique_ptr<uint8_t, Free> data_;
};

}  // namespace intattention
