// The comparison pipelines (docs/numerics.md sections 7 and 8) and their kernels on NumPy arrays.
#include <cmath>

#include "arrays.h"
#include "attention_paper.h"
#include "attention_quant_only.h"
#include "dispatch.h"
#include "pool.h"
#include "register.h"

namespace intattention::bindings {
namespace {

// The argument checks of register_attention.cpp.
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

struct Options {
  bool causal;
  float scale;
  size_t window, prefix;
};

template <typename T>
AttentionShape checked_shape(const py::array& q, const py::array& k, const py::array& v, const Options& options) {
  checked<T>(q, "q", 3);
  checked<T>(k, "k", 3);
  checked<T>(v, "v", 3);
  const size_t d = dim(q, 2), q_len = dim(q, 1), kv_len = dim(k, 1);
  check_shape(k, "k", {dim(k, 0), kv_len, d});
  check_shape(v, "v", {dim(k, 0), kv_len, d});
  AttentionShape shape{
      dim(q, 0), dim(k, 0), d, q_len, Mask{kv_len, 0, options.causal, options.window, options.prefix}, options.scale};
  check(shape);
  shape.mask.q_position = options.causal ? kv_len - q_len : 0;
  return shape;
}

// A float array with one scale for all of it.
struct QuantizedTensor {
  AlignedBuffer data;
  float scale = 0.0f;

  QuantizedTensor(const char* name, const py::array& x) : data(static_cast<size_t>(x.size())) {
    active_table().quantize_f32s8(1, data.size(), static_cast<const float*>(x.data()), data.as<int8_t>(), &scale,
                                  nullptr);
    if (!std::isfinite(scale)) throw InvalidArgument(message(name, " holds NaN or Inf"));
  }
  Int8Heads heads() const { return {data.as<int8_t>(), scale}; }
};

Int8Heads int8_heads(const char* name, const py::array& x, float scale) {
  if (!(scale >= 0.0f && std::isfinite(scale)))
    throw InvalidArgument(message("scale of ", name, " is ", scale, ", expected a finite number >= 0"));
  return {static_cast<const int8_t*>(x.data()), scale};
}

PaperRounding rounding_from_name(const std::string& name) {
  if (name == "nearest") return PaperRounding::kNearest;
  if (name == "floor") return PaperRounding::kFloor;
  throw InvalidArgument(message("rounding is '", name, "', accepted: 'nearest', 'floor'"));
}

py::array_t<float> paper(const py::array& q, const py::array& k, const py::array& v, bool causal, float scale,
                         size_t window, size_t prefix, const std::string& rounding, ThreadPool* user_pool) {
  const AttentionShape shape = checked_shape<float>(q, k, v, {causal, scale, window, prefix});
  const PaperRounding variant = rounding_from_name(rounding);
  py::array_t<float> out = new_array<float>({shape.n_heads, shape.q_len, shape.head_dim});
  float* out_data = out.mutable_data();
  py::gil_scoped_release release;
  ThreadPool& pool = pool_or_default(user_pool);
  const ThreadPool::CallerPin pin(pool);
  const QuantizedTensor q8("q", q), k8("k", k), v8("v", v);
  attention_paper(pool, shape, q8.heads(), k8.heads(), v8.heads(), variant, out_data, nullptr);
  return out;
}

py::tuple paper_int8(const py::array& q, const py::array& k, const py::array& v, float q_scale, float k_scale,
                     float v_scale, bool causal, float scale, size_t window, size_t prefix, const std::string& rounding,
                     ThreadPool* user_pool, bool return_probs) {
  const AttentionShape shape = checked_shape<int8_t>(q, k, v, {causal, scale, window, prefix});
  const Int8Heads q8 = int8_heads("q", q, q_scale), k8 = int8_heads("k", k, k_scale), v8 = int8_heads("v", v, v_scale);
  const PaperRounding variant = rounding_from_name(rounding);
  py::array_t<float> out = new_array<float>({shape.n_heads, shape.q_len, shape.head_dim});
  py::array_t<uint8_t> probs = new_array<uint8_t>({return_probs ? shape.n_heads : 0, shape.q_len, shape.mask.kv_len});
  float* out_data = out.mutable_data();
  uint8_t* probs_data = return_probs ? probs.mutable_data() : nullptr;
  {
    py::gil_scoped_release release;
    ThreadPool& pool = pool_or_default(user_pool);
    const ThreadPool::CallerPin pin(pool);
    attention_paper(pool, shape, q8, k8, v8, variant, out_data, probs_data);
  }
  return py::make_tuple(out, return_probs ? py::object(probs) : py::object(py::none()));
}

py::array_t<float> quant_only(const py::array& q, const py::array& k, const py::array& v, bool causal, float scale,
                              size_t window, size_t prefix, ThreadPool* user_pool) {
  const AttentionShape shape = checked_shape<float>(q, k, v, {causal, scale, window, prefix});
  py::array_t<float> out = new_array<float>({shape.n_heads, shape.q_len, shape.head_dim});
  float* out_data = out.mutable_data();
  py::gil_scoped_release release;
  ThreadPool& pool = pool_or_default(user_pool);
  const ThreadPool::CallerPin pin(pool);
  const QuantizedTensor q8("q", q), k8("k", k), v8("v", v);
  attention_quant_only(pool, shape, q8.heads(), k8.heads(), v8.heads(), out_data);
  return out;
}

struct Span {
  size_t begin, end;
};

Span checked_span(const int32_t* begin, const int32_t* end, size_t row, size_t n) {
  const int64_t first = begin[row], last = end[row];
  if (first < 0 || first > last || last > static_cast<int64_t>(n))
    throw InvalidArgument(message("row ", row, ": keys ", first, " to ", last, ", expected 0 <= begin <= end <= ", n));
  return {static_cast<size_t>(first), static_cast<size_t>(last)};
}

const int32_t* rows_of(const py::array& x, const char* name, size_t m) {
  const int32_t* data = checked<int32_t>(x, name, 1);
  check_shape(x, name, {m});
  return data;
}

py::tuple softmax_s32s8(const py::array& logits, const py::array& begin, const py::array& end, float factor,
                        const py::array& running_max) {
  const int32_t* a = checked<int32_t>(logits, "logits", 2);
  const size_t m = dim(logits, 0), n = dim(logits, 1), padded = (n + 15) / 16 * 16;
  if (!(factor >= 0.0f && std::isfinite(factor)))
    throw InvalidArgument(message("factor is ", factor, ", expected a finite number >= 0"));
  const int32_t *first = rows_of(begin, "begin", m), *last = rows_of(end, "end", m);
  const int32_t* max_in = rows_of(running_max, "running_max", m);
  py::array_t<int8_t> probs = new_array<int8_t>({m, n});
  py::array_t<int32_t> max = new_array<int32_t>({m}), sum = new_array<int32_t>({m});
  AlignedBuffer block(padded * sizeof(int32_t)), out(padded);
  for (size_t i = 0; i < m; ++i) {
    const Span span = checked_span(first, last, i, n);
    FloatSoftmaxRow row{static_cast<uint32_t>(span.begin), static_cast<uint32_t>(span.end), factor, max_in[i], 0};
    std::copy_n(a + i * n, n, block.as<int32_t>());
    active_table().softmax_s32s8(padded, block.as<int32_t>(), &row, out.as<int8_t>());
    std::copy_n(out.as<int8_t>(), n, probs.mutable_data() + i * n);
    max.mutable_data()[i] = row.max;
    sum.mutable_data()[i] = row.sum;
  }
  return py::make_tuple(probs, max, sum);
}

py::tuple paper_softmax_s32u8(const py::array& logits, const py::array& begin, const py::array& end, int32_t c_int,
                              const std::string& rounding) {
  const int32_t* a = checked<int32_t>(logits, "logits", 2);
  const size_t m = dim(logits, 0), n = dim(logits, 1), padded = (n + 15) / 16 * 16;
  if (c_int < 1) throw InvalidArgument(message("c_int is ", c_int, ", expected at least 1"));
  const PaperIndex index = paper_index(c_int, rounding_from_name(rounding));
  const int32_t *first = rows_of(begin, "begin", m), *last = rows_of(end, "end", m);
  py::array_t<uint8_t> probs = new_array<uint8_t>({m, n});
  py::array_t<uint32_t> sum = new_array<uint32_t>({m});
  AlignedBuffer row(padded * sizeof(int32_t)), out(padded);
  for (size_t i = 0; i < m; ++i) {
    const Span span = checked_span(first, last, i, n);
    std::copy_n(a + i * n, n, row.as<int32_t>());
    sum.mutable_data()[i] =
        active_table().paper_softmax_s32u8(padded, row.as<int32_t>(), span.begin, span.end, &index, out.data());
    std::copy_n(out.data(), n, probs.mutable_data() + i * n);
  }
  return py::make_tuple(probs, sum);
}

}  // namespace

void register_attention_study(py::module_& m) {
  m.def("attention_paper", &paper, py::arg("q").noconvert(), py::arg("k").noconvert(), py::arg("v").noconvert(),
        py::arg("causal"), py::arg("scale"), py::arg("window") = 0, py::arg("prefix") = 0,
        py::arg("rounding") = "nearest", py::arg("pool") = py::none());
  m.def("attention_paper_int8", &paper_int8, py::arg("q").noconvert(), py::arg("k").noconvert(),
        py::arg("v").noconvert(), py::arg("q_scale"), py::arg("k_scale"), py::arg("v_scale"), py::arg("causal"),
        py::arg("scale"), py::arg("window") = 0, py::arg("prefix") = 0, py::arg("rounding") = "nearest",
        py::arg("pool") = py::none(), py::arg("return_probs") = false);
  m.def("attention_quant_only", &quant_only, py::arg("q").noconvert(), py::arg("k").noconvert(),
        py::arg("v").noconvert(), py::arg("causal"), py::arg("scale"), py::arg("window") = 0, py::arg("prefix") = 0,
        py::arg("pool") = py::none());
  m.def("softmax_s32s8", &softmax_s32s8, py::arg("logits").noconvert(), py::arg("begin").noconvert(),
        py::arg("end").noconvert(), py::arg("factor"), py::arg("running_max").noconvert());
  m.def("paper_softmax_s32u8", &paper_softmax_s32u8, py::arg("logits").noconvert(), py::arg("begin").noconvert(),
        py::arg("end").noconvert(), py::arg("c_int"), py::arg("rounding"));
}

}  // namespace intattention::bindings
