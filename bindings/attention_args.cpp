#include "attention_args.h"

namespace intattention::bindings {

AttentionShape attention_shape(const py::array& q, const py::array& k, const py::array& v,
                               const AttentionOptions& options) {
  const size_t d = dim(q, 2), q_len = dim(q, 1), kv_len = dim(k, 1);
  check_shape(k, "k", {dim(k, 0), kv_len, d});
  check_shape(v, "v", {dim(k, 0), kv_len, d});
  return checked_attention_shape(dim(q, 0), dim(k, 0), d, q_len,
                                 Mask{kv_len, 0, options.causal, options.window, options.prefix}, options.scale);
}

void throw_not_finite(const char* name, size_t head_vector) {
  throw InvalidArgument(message(name, " holds NaN or Inf (head vector ", head_vector, ")"));
}

}  // namespace intattention::bindings
