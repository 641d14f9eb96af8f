// A zero-filled, 64-byte aligned, owned block of bytes. Throws std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "page_memory.h"

namespace intattention {

// Where buffers come from; must stay usable as long as a buffer that it gave.
struct BufferAllocator {
  void* (*allocate)(void* user, size_t bytes, size_t alignment);  // null: no memory
  void (*release)(void* user, void* memory, size_t bytes);
  void* user;
};

// Buffers that this thread makes come from `allocator` during the object's life; null: operator new.
class ScopedAllocator {
 public:
  explicit ScopedAllocator(const BufferAllocator* allocator) : former_(current()) { current() = allocator; }
  ~ScopedAllocator() { current() = former_; }
  ScopedAllocator(const ScopedAllocator&) = delete;
  ScopedAllocator& operator=(const ScopedAllocator&) = delete;

  static const BufferAllocator*& current() {
    thread_local const BufferAllocator* allocator = nullptr;
    return allocator;
  }

 private:
  const BufferAllocator* former_;
};

class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 64;  // a cache line on every target

  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    Free free;
    void* memory = nullptr;
    bool zero = false;
    if (const BufferAllocator* own = ScopedAllocator::current(); own != nullptr) {
      free = Free(*own, bytes);
      memory = own->allocate(own->user, bytes, kAlignment);
      if (memory != nullptr && reinterpret_cast<uintptr_t>(memory) % kAlignment != 0) {
        own->release(own->user, memory, bytes);
        memory = nullptr;
      }
    } else if (bytes >= kPageMemoryBytes) {
      free = Free({nullptr, [](void*, void* pages, size_t size) { unmap_pages(pages, size); }, nullptr}, bytes);
      memory = map_pages(bytes);
      zero = true;
    } else {
      memory = ::operator new(bytes, std::align_val_t(kAlignment));
    }
    if (memory == nullptr) throw std::bad_alloc();
    data_ = std::unique_ptr<uint8_t, Free>(static_cast<uint8_t*>(memory), free);
    if (!zero) std::memset(memory, 0, bytes);
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
    BufferAllocator origin;
    size_t bytes;

    Free() : Free(BufferAllocator{nullptr, nullptr, nullptr}, 0) {}
    Free(const BufferAllocator& from, size_t size) : origin(from), bytes(size) {}
    void operator()(uint8_t* p) const {
      if (origin.release != nullptr)
        origin.release(origin.user, p, bytes);
      else
        ::operator delete(p, std::align_val_t(kAlignment));
    }
  };
  size_t bytes_ = 0;
  std::unique_ptr<uint8_t, Free> data_;
};

}  // namespace intattention
