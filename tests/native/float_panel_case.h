// Packed panels of 16 columns for the float GEMM checks, and float16 through tables of all 65536 values.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernel_table.h"
#include "packing.h"

namespace intattention::testing {

// b row-major [n][k], n a multiple of 16 -> panels (kernel_table.h), `stride` elements apart.
template <typename T>
std::vector<T> pack_panels(size_t n, size_t k, const std::vector<T>& b, size_t stride) {
  std::vector<T> packed((n / kFloatPanel - 1) * stride + kFloatPanel * k, T{0});
  for (size_t j = 0; j < n; ++j)
    for (size_t i = 0; i < k; ++i) packed[j / kFloatPanel * stride + i * kFloatPanel + j % kFloatPanel] = b[j * k + i];
  return packed;
}

// The nearest float16, found by search among neighbours (even bits win a tie); |x| below 65520.
inline uint16_t f16_bits(float x) {
  uint16_t low = 0, high = 0x7bff;  // the largest value not above |x|
  while (low < high) {
    const uint16_t middle = static_cast<uint16_t>((low + high + 1) / 2);
    if (f16_to_f32(middle) <= std::fabs(x))
      low = middle;
    else
      high = static_cast<uint16_t>(middle - 1);
  }
  const uint16_t next = static_cast<uint16_t>(low + 1);
  const double below = std::fabs(x) - double{f16_to_f32(low)};
  const double above = (low == 0x7bff ? 65536.0 : double{f16_to_f32(next)}) - std::fabs(x);
  const uint16_t magnitude = below < above || (below == above && low % 2 == 0) ? low : next;
  return static_cast<uint16_t>(magnitude | (std::signbit(x) ? 0x8000 : 0));
}

}  // namespace intattention::testing
