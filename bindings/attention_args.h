// The arguments that every attention on NumPy arrays takes, checked in one place.
#pragma once

#include "arrays.h"
#include "attention.h"

namespace intattention::bindings {

struct AttentionArgs {
  AttentionShape shape;
  const float *q, *k, *v;  // [n_heads][q_len][d], [n_kv_heads][kv_len][d]
};

// Raises ValueError for wrong dtypes, shapes, masks or scales. Causal: query 0 sits at kv_len - q_len.
AttentionArgs attention_args(const py::array& q, const py::array& k, const py::array& v, bool causal, float scale,
                             size_t window, size_t prefix);

// "k holds NaN or Inf (head vector 3)"
[[noreturn]] void throw_not_finite(const char* name, size_t head_vector);

}  // namespace intattention::bindings
