// attention_float() on float arrays: the float pipelines that the integer attention is compared with.
#include <cmath>
#include <limits>
#include <string>

#include "attention_args.h"
#include "attention_float.h"
#include "pool.h"
#include "register.h"

namespace intattention::bindings {
namespace {

constexpr float kMaxF16 = 65504.0f;

bool within(size_t n, const float* x, float limit) {
  int beyond = 0;
  for (size_t i = 0; i < n; ++i) beyond |= !(std::fabs(x[i]) <= limit);
  return beyond == 0;
}

// Throws InvalidArgument for NaN, Inf or a magnitude above `limit`.
void check_values(ThreadPool& pool, const char* name, size_t rows, size_t d, const float* x, float limit) {
  constexpr size_t kRowsPerItem = 256;
  pool.parallel_for((rows + kRowsPerItem - 1) / kRowsPerItem, [&](size_t item, int) {
    const size_t first = item * kRowsPerItem, count = std::min(kRowsPerItem, rows - first);
    if (within(count * d, x + first * d, limit)) return;
    for (size_t row = first; row < first + count; ++row) {
      if (!within(d, x + row * d, std::numeric_limits<float>::max())) throw_not_finite(name, row);
      if (!within(d, x + row * d, limit))
        throw InvalidArgument(message(name, " exceeds ", limit, ", the range of float16 (head vector ", row, ")"));
    }
  });
}

FloatPrecision precision_from_name(const std::string& name) {
  if (name == "fp32") return FloatPrecision::kFp32;
  if (name == "fp16") return FloatPrecision::kFp16;
  throw InvalidArgument(message("attention: precision is '", name, "', expected 'fp32' or 'fp16'"));
}

py::array_t<float> run(const py::array& q, const py::array& k, const py::array& v, bool causal, float scale,
                       size_t window, size_t prefix, const std::string& precision_name, ThreadPool* user_pool) {
  const AttentionArgs<float> args(q, k, v, {causal, scale, window, prefix});
  const AttentionShape& shape = args.shape;
  const FloatPrecision precision = precision_from_name(precision_name);
  const size_t d = shape.head_dim, kv_rows = shape.n_kv_heads * shape.mask.kv_len;
  if (d == 0 || d % 16 != 0) throw InvalidArgument(message("attention: head_dim ", d, " is not a multiple of 16"));
  py::array_t<float> out = new_array<float>({shape.n_heads, shape.q_len, d});
  float* out_data = out.mutable_data();
  py::gil_scoped_release release;
  ThreadPool& pool = pool_or_default(user_pool);
  const ThreadPool::CallerPin pin(pool);
  const bool fp16 = precision == FloatPrecision::kFp16;
  const float limit = fp16 ? kMaxF16 : std::numeric_limits<float>::max();
  // q is rounded to float16 after the scale
  const float q_limit = fp16 ? std::min(limit / scale, std::numeric_limits<float>::max()) : limit;
  check_values(pool, "q", shape.n_heads * shape.q_len, d, args.q, q_limit);
  check_values(pool, "k", kv_rows, d, args.k, limit);
  check_values(pool, "v", kv_rows, d, args.v, limit);
  attention_float(pool, shape, precision, args.q, args.k, args.v, out_data);
  return out;
}

}  // namespace

void register_attention_float(py::module_& m) {
  m.def("attention_float", &run, py::arg("q").noconvert(), py::arg("k").noconvert(), py::arg("v").noconvert(),
        py::arg("causal"), py::arg("scale"), py::arg("window"), py::arg("prefix"), py::arg("precision"),
        py::arg("pool") = py::none());
}

}  // namespace intattention::bindings
