#include "attention_args.h"

#include <cmath>

namespace intattention::bindings {
namespace {

void check(const AttentionShape& s) {
  const Mask& mask = s.mask;
  if (s.q_len == 0 || mask.kv_len == 0 || s.n_heads == 0 || s.n_kv_heads == 0 || s.n_heads % s.n_kv_heads != 0)
    throw InvalidArgument(message("attention: ", s.n_heads, " query heads, ", s.n_kv_heads, " kv heads, q_len ",
                                  s.q_len, ", kv_len ", mask.kv_len,
                                  ": none may be 0 and the query heads must be a multiple of the kv heads"));
  if (s.head_dim == 0 || s.head_dim % 16 != 0 || s.head_dim > 1024)
    throw InvalidArgument(message("attention: head_dim ", s.head_dim, " must be a multiple of 16, at most 1024"));
  if (mask.causal && s.q_len > mask.kv_len)
    throw InvalidArgument(message("attention: causal with q_len ", s.q_len, " > kv_len ", mask.kv_len));
  if (!mask.causal && (mask.window != 0 || mask.prefix != 0))
    throw InvalidArgument(message("attention: window ", mask.window, " and prefix ", mask.prefix, " need causal=True"));
  if (mask.window != 0 && mask.prefix != 0)
    throw InvalidArgument(
        message("attention: window ", mask.window, " and prefix ", mask.prefix, " exclude each other"));
  if (!(s.scale > 0.0f && std::isfinite(s.scale)))
    throw InvalidArgument(message("attention: scale is ", s.scale, ", expected a finite number > 0"));
}

}  // namespace

AttentionShape attention_shape(const py::array& q, const py::array& k, const py::array& v,
                               const AttentionOptions& options) {
  const size_t d = dim(q, 2), q_len = dim(q, 1), kv_len = dim(k, 1);
  check_shape(k, "k", {dim(k, 0), kv_len, d});
  check_shape(v, "v", {dim(k, 0), kv_len, d});
  AttentionShape shape{
      dim(q, 0), dim(k, 0), d, q_len, Mask{kv_len, 0, options.causal, options.window, options.prefix}, options.scale};
  check(shape);
  shape.mask.q_position = options.causal ? kv_len - q_len : 0;
  return shape;
}

void throw_not_finite(const char* name, size_t head_vector) {
  throw InvalidArgument(message(name, " holds NaN or Inf (head vector ", head_vector, ")"));
}

}  // namespace intattention::bindings
