// attention() on float arrays: quantises q, k, v, fills a one-layer cache and runs the decoder's attention.
#include <atomic>
#include <cmath>

#include "attention_args.h"
#include "dispatch.h"
#include "pool.h"
#include "register.h"

namespace intattention::bindings {
namespace {

// Quantises n head vectors; throws InvalidArgument if one holds NaN or Inf.
void quantize_heads(const char* name, size_t n, size_t d, const float* x, int8_t* q, float* scale) {
  active_table().quantize_f32s8(n, d, x, q, scale, nullptr);
  for (size_t i = 0; i < n; ++i)
    if (!std::isfinite(scale[i])) throw_not_finite(name, i);
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

py::array_t<float> run(const py::array& q, const py::array& k, const py::array& v, bool causal, float scale,
                       size_t window, ThreadPool* user_pool, size_t prefix) {
  const AttentionArgs args = attention_args(q, k, v, causal, scale, window, prefix);
  const AttentionShape& shape = args.shape;
  const size_t d = shape.head_dim, q_len = shape.q_len;
  py::array_t<float> out = new_array<float>({shape.n_heads, q_len, d});
  float* out_data = out.mutable_data();
  py::gil_scoped_release release;
  ThreadPool& pool = pool_or_default(user_pool);
  const ThreadPool::CallerPin pin(pool);
  const KVCache cache = filled_cache(shape.n_kv_heads, shape.mask.kv_len, d, args.k, args.v);
  const QuantizedHeads q8("q", shape.n_heads * q_len, d, args.q);
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
