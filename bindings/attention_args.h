// The arguments that every attention on NumPy arrays takes, checked in one place.
#pragma once

#include "arrays.h"
#include "head_tensor.h"

namespace intattention::bindings {

struct AttentionOptions {
  bool causal;
  float scale;
  size_t window, prefix;
};

// Raises ValueError for shapes, masks or scales that do not fit. Causal: query 0 sits at kv_len - q_len.
AttentionShape attention_shape(const py::array& q, const py::array& k, const py::array& v,
                               const AttentionOptions& options);

template <typename T>
struct AttentionArgs {
  const T *q, *k, *v;  // [n_heads][q_len][d], [n_kv_heads][kv_len][d]
  AttentionShape shape;

  // Raises ValueError, for a wrong dtype too.
  AttentionArgs(const py::array& q_array, const py::array& k_array, const py::array& v_array,
                const AttentionOptions& options)
      : q(checked<T>(q_array, "q", 3)),
        k(checked<T>(k_array, "k", 3)),
        v(checked<T>(v_array, "v", 3)),
        shape(attention_shape(q_array, k_array, v_array, options)) {}
};

// "k holds NaN or Inf (head vector 3)"
[[noreturn]] void throw_not_finite(const char* name, size_t head_vector);

}  // namespace intattention::bindings
