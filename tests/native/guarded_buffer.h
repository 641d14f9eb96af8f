// Memory for one kernel argument that ends right before a page without access.
//
//   | canary 0xA5 ...            | count elements | slack bytes, canary | PROT_NONE page |
//   ^ page boundary              ^ data()                               ^ page boundary
//
// A read or write past the end traps at once; with slack > 0 (which misaligns the data) a write past the
// end, and in any case one before the start, is found by intact().
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

namespace intattention::testing {

template <typename T>
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t count, size_t slack = 0) : count_(count), slack_(slack) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    usable_ = (count * sizeof(T) + slack + page) / page * page;
    mapped_ = usable_ + page;
    void* base = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<uint8_t*>(base);
    if (mprotect(base_ + usable_, page, PROT_NONE) != 0) throw std::bad_alloc();
    std::memset(base_, kCanary, usable_);
  }
  explicit GuardedBuffer(const std::vector<T>& values, size_t slack = 0) : GuardedBuffer(values.size(), slack) {
    if (!values.empty()) std::memcpy(data(), values.data(), values.size() * sizeof(T));
  }
  ~GuardedBuffer() { munmap(base_, mapped_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  T* data() { return reinterpret_cast<T*>(base_ + usable_ - slack_) - count_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return data()[i]; }

  bool intact() {
    const uint8_t* begin = reinterpret_cast<const uint8_t*>(data());
    const auto is_canary = [](uint8_t byte) { return byte == kCanary; };
    return std::all_of(static_cast<const uint8_t*>(base_), begin, is_canary) &&
           std::all_of(base_ + usable_ - slack_, base_ + usable_, is_canary);
  }

 private:
  static constexpr uint8_t kCanary = 0xA5;
  size_t count_, slack_, usable_ = 0, mapped_ = 0;
  uint8_t* base_ = nullptr;
};

}  // namespace intattention::testing
