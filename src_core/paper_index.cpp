#include "paper_index.h"

#include <cmath>

namespace intattention {

int32_t paper_clip(float q_scale, float k_scale, float scale, PaperRounding rounding) {
  const float c = 6.6f / q_scale / k_scale / scale;
  const float rounded = rounding == PaperRounding::kFloor ? std::trunc(c) : std::nearbyint(c);
  if (!(rounded < 2147483648.0f)) return 2147483647;  // infinite where a scale is 0
  return rounded < 1.0f ? 1 : static_cast<int32_t>(rounded);
}

PaperIndex paper_index(int32_t c_int, PaperRounding rounding) {
  PaperIndex index{c_int, c_int < 64 ? 6 : 0, 0, 0, 1};
  const uint64_t c = static_cast<uint64_t>(c_int) << index.lshift;
  // 31 << 58 < 2^63; the loop ends at shift = 26 for the largest c
  const auto multiplier = [&](int32_t shift) { return ((uint64_t{31} << (32 + shift)) + c - 1) / c; };
  while (multiplier(index.shift + 1) < uint64_t{1} << 32) ++index.shift;
  index.multiplier = static_cast<uint32_t>(multiplier(index.shift));
  index.half = rounding == PaperRounding::kNearest ? 1u << (index.shift - 1) : 0;
  return index;
}

}  // namespace intattention
