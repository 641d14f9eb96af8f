// The Walsh-Hadamard rotation that q, k and v go through before they are rounded to int8 (docs/numerics.md section 2).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel_table.h"

namespace intattention {

// Channels that one transform mixes: the largest power of two that divides head_dim.
constexpr size_t rotation_size(size_t head_dim) { return head_dim & (~head_dim + 1); }

constexpr size_t kMaxHeadDim = 1024;

// Rotates one head vector and quantises the result; scale is NaN if x holds NaN or Inf.
inline void rotate_quantize(const KernelTable& table, size_t head_dim, const float* x, int8_t* q, float* scale) {
  float rotated[kMaxHeadDim];
  table.hadamard_f32(head_dim, rotation_size(head_dim), x, rotated);
  table.quantize_f32s8(1, head_dim, rotated, q, scale, nullptr);
}

}  // namespace intattention
