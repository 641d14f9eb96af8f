// The division of the published IndexSoftmax, idx = round(31 * delta / c_int), as one 32 x 32 bit multiplication
// (docs/numerics.md section 7).
//
// multiplier = ceil(31 * 2^(32 + shift) / c) with the shift that brings it to 2^31 .. 2^32 - 1, so that
// 2^(32 + shift) > c * 2^26.04. The product is off by less than delta / 2^(32 + shift) <= 2^25 / (c * 2^26.04) < 1 /
// (2c), and 31 * delta / c, like 31 * delta / c + 1/2, is a multiple of 1 / (2c): the floor of the product is exact.
// Rounding adds one half in units of the shifted result, after the low 32 bits are dropped: floor(floor(2x) + 1) / 2) =
// floor(x + 1/2). c below 64 would need a negative shift and is multiplied by 64, as is delta.
//
// Rejected: a float reciprocal (exact only below c = 90,000; the golden data has 228,857) and a correction step after
// it (four more operations per logit).
#pragma once

#include <cstdint>

#include "kernel_table.h"

namespace intattention {

enum class PaperRounding : uint8_t { kNearest, kFloor };

// c_int = round or trunc of ((6.6 / s_q) / s_k) / scale in float32, kept within 1 .. 2^31 - 1. (0 would divide by zero;
// beyond 2^31 no delta of int8 vectors of up to 1024 elements reaches half a step.)
int32_t paper_clip(float q_scale, float k_scale, float scale, PaperRounding rounding);

PaperIndex paper_index(int32_t c_int, PaperRounding rounding);

}  // namespace intattention
