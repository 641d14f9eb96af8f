// What the libFuzzer targets read from: the input, byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace intattention::fuzzing {

// Bytes off the front of the input; zeros beyond its end.
struct Input {
  const uint8_t* data;
  size_t size;

  void take(void* out, size_t bytes) {
    const size_t have = bytes < size ? bytes : size;
    std::memset(out, 0, bytes);
    if (have) std::memcpy(out, data, have);
    data += have;
    size -= have;
  }
  template <typename T>
  T number() {
    T value;
    take(&value, sizeof value);
    return value;
  }
  uint8_t byte() { return number<uint8_t>(); }
};

}  // namespace intattention::fuzzing
