// attention() on float arrays: quantises q, k, v, fills a one-layer cache and runs the decoder's attention.
#include <atomic>
#include <cmath>

#include "arrays.h"
#include "attention.h"
#include "dispatch.h"
#include "pool.h"
#include "register.h"

namespace intattention::bindings {
namespace {

// Quantises n head vectors; throws InvalidArgument if one holds NaN or Inf.
void quantize_heads(const char* name, size_t n, size_t d, const float* x, int8_t* q, float* scale) {
  active_table().quantize_f32s8(n, d, x, q, scale, nullptr);
  for (size_t i = 0; i < n; ++i)
    if (!std::isfinite(scale[i])) throw InvalidArgument(message(name, " holds NaN or Inf (head vector ", i, ")"));
}

struct QuantizedHeads {
  AlignedBuffer q, scale;
  QuantizedHeads(const char* name, size_t n, size_t d, const float* x) : q(n * d), scale(n * sizeof(float)) {
    quantize_heads(name, n, d, x, q.as<int8_t>(), scale.as<float>());
  }
};

KVCache filled_cache(size_t heads, size_t length, size_t d, const float* k, const float* v) {
  KVCache cache(1, heads, d, length);
  cache.reserve(length);
  const QuantizedHeads k8("k", heads * length, d, k), v8("v", heads * length, d, v);
  for (size_t h = 0; h < heads; ++h)
    for (size_t j = 0; j < length; ++j) {
      const size_t row = h * length + j;
      cache.write(0, h, j, k8.q.as<int8_t>() + row * d, k8.scale.as<float>()[row], v8.q.as<int8_t>() + row * d,
                  v8.scale.as<float>()[row]);
    }
  cache.set_length(length);
  return cache;
}

void check(const AttentionShape& s) {
  const Mask& mask = s.mask;
  if (s.q_len == 0 || mask.kv_len == 0 || s.n_heads == 0 || s.n_kv_heads == 0 || s.n_heads % s.n_kv_heads != 0)
    throw InvalidArgument(message("attention: ", s.n_heads, " query heads, ", s.n_kv_heads, " kv heads, q_len ",
                                  s.q_len, ", kv_len ", mask.kv_len,
                                  ": none may be 0 and the query heads must be a multiple of the kv heads"));
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

py::array_t<float> run(const py::array& q, const py::array& k, const py::array& v, bool causal, float scale,
                       size_t window, ThreadPool* user_pool, size_t prefix) {
  const float* q_data = checked<float>(q, "q", 3);
  const float* k_data = checked<float>(k, "k", 3);
  const float* v_data = checked<float>(v, "v", 3);
  const size_t d = dim(q, 2), q_len = dim(q, 1), kv_len = dim(k, 1);
  check_shape(k, "k", {dim(k, 0), kv_len, d});
  check_shape(v, "v", {dim(k, 0), kv_len, d});
  AttentionShape shape{dim(q, 0), dim(k, 0), d, q_len, Mask{kv_len, 0, causal, window, prefix}, scale};
  check(shape);
  shape.mask.q_position = causal ? kv_len - q_len : 0;
  py::array_t<float> out = new_array<float>({shape.n_heads, q_len, d});
  float* out_data = out.mutable_data();
  py::gil_scoped_release release;
  ThreadPool& pool = pool_or_default(user_pool);
  const ThreadPool::CallerPin pin(pool);
  const KVCache cache = filled_cache(shape.n_kv_heads, kv_len, d, k_data, v_data);
  const QuantizedHeads q8("q", shape.n_heads * q_len, d, q_data);
  // [head][token] -> [kv head][token][head of the group], as attention() wants it
  AlignedBuffer grouped(shape.n_heads * q_len * d), grouped_scale(shape.n_heads * q_len * sizeof(float));
  AlignedBuffer by_token(shape.n_heads * q_len * d * sizeof(float));
  const size_t group = shape.group();
  for (size_t h = 0; h < shape.n_heads; ++h)
    for (size_t t = 0; t < q_len; ++t) {
      const size_t from = h * q_len + t, to = (h / group * q_len + t) * group + h % group;
      std::copy_n(q8.q.as<int8_t>() + from * d, d, grouped.as<int8_t>() + to * d);
      grouped_scale.as<float>()[to] = q8.scale.as<float>()[from];
    }
  AttentionWorkspace workspace;
  attention(pool, shape, grouped.as<int8_t>(), grouped_scale.as<float>(), cache, 0, by_token.as<float>(), workspace);
  for (size_t h = 0; h < shape.n_heads; ++h)
    for (size_t t = 0; t < q_len; ++t)
      std::copy_n(by_token.as<float>() + (t * shape.n_heads + h) * d, d, out_data + (h * q_len + t) * d);
  return out;
}

}  // namespace

void register_attention(py::module_& m) {
  m.def("attention", &run, py::arg("q").noconvert(), py::arg("k").noconvert(), py::arg("v").noconvert(),
        py::arg("causal"), py::arg("scale"), py::arg("window"), py::arg("pool") = py::none(), py::arg("prefix") = 0);
}

}  // namespace intattention::bindings
