// The comparison pipelines (docs/numerics.md sections 7 and 8) and their kernels on NumPy arrays.
#include <cmath>

#include "attention_args.h"
#include "attention_paper.h"
#include "attention_quant_only.h"
#include "dispatch.h"
#include "pool.h"
#include "register.h"

namespace intattention::bindings {
namespace {

// A float array with one scale for all of it.
struct QuantizedTensor {
  AlignedBuffer data;
  float scale;

  QuantizedTensor(ThreadPool& pool, const char* name, size_t n, const float* x)
      : data(n), scale(quantize_tensor(pool, n, x, data.as<int8_t>())) {
    if (!std::isfinite(scale)) throw InvalidArgument(message(name, " holds NaN or Inf"));
  }
  Int8Heads heads() const { return {data.as<int8_t>(), scale}; }
};

struct QuantizedArgs {
  QuantizedTensor q, k, v;

  QuantizedArgs(ThreadPool& pool, const AttentionArgs<float>& args)
      : q(pool, "q", args.shape.n_heads * args.shape.q_len * args.shape.head_dim, args.q),
        k(pool, "k", args.shape.n_kv_heads * args.shape.mask.kv_len * args.shape.head_dim, args.k),
        v(pool, "v", args.shape.n_kv_heads * args.shape.mask.kv_len * args.shape.head_dim, args.v) {}
};

Int8Heads int8_heads(const char* name, const int8_t* x, float scale) {
  if (!(scale >= 0.0f && std::isfinite(scale)))
    throw InvalidArgument(message("scale of ", name, " is ", scale, ", expected a finite number >= 0"));
  return {x, scale};
}

PaperRounding rounding_from_name(const std::string& name) {
  if (name == "nearest") return PaperRounding::kNearest;
  if (name == "floor") return PaperRounding::kFloor;
  throw InvalidArgument(message("rounding is '", name, "', accepted: 'nearest', 'floor'"));
}

py::array_t<float> paper(const py::array& q, const py::array& k, const py::array& v, bool causal, float scale,
                         size_t window, size_t prefix, const std::string& rounding, ThreadPool* user_pool) {
  const AttentionArgs<float> args(q, k, v, {causal, scale, window, prefix});
  const AttentionShape& shape = args.shape;
  const PaperRounding variant = rounding_from_name(rounding);
  py::array_t<float> out = new_array<float>({shape.n_heads, shape.q_len, shape.head_dim});
  float* out_data = out.mutable_data();
  py::gil_scoped_release release;
  ThreadPool& pool = pool_or_default(user_pool);
  const ThreadPool::CallerPin pin(pool);
  const QuantizedArgs x(pool, args);
  attention_paper(pool, shape, x.q.heads(), x.k.heads(), x.v.heads(), variant, out_data, nullptr);
  return out;
}

py::tuple paper_int8(const py::array& q, const py::array& k, const py::array& v, float q_scale, float k_scale,
                     float v_scale, bool causal, float scale, size_t window, size_t prefix, const std::string& rounding,
                     ThreadPool* user_pool, bool return_probs) {
  const AttentionArgs<int8_t> args(q, k, v, {causal, scale, window, prefix});
  const AttentionShape& shape = args.shape;
  const Int8Heads q8 = int8_heads("q", args.q, q_scale), k8 = int8_heads("k", args.k, k_scale),
                  v8 = int8_heads("v", args.v, v_scale);
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
  const AttentionArgs<float> args(q, k, v, {causal, scale, window, prefix});
  const AttentionShape& shape = args.shape;
  py::array_t<float> out = new_array<float>({shape.n_heads, shape.q_len, shape.head_dim});
  float* out_data = out.mutable_data();
  py::gil_scoped_release release;
  ThreadPool& pool = pool_or_default(user_pool);
  const ThreadPool::CallerPin pin(pool);
  const QuantizedArgs x(pool, args);
  attention_quant_only(pool, shape, x.q.heads(), x.k.heads(), x.v.heads(), out_data);
  return out;
}

KeySpan checked_span(const int32_t* begin, const int32_t* end, size_t row, size_t n) {
  const int64_t first = begin[row], last = end[row];
  if (first < 0 || first > last || last > static_cast<int64_t>(n))
    throw InvalidArgument(message("row ", row, ": keys ", first, " to ", last, ", expected 0 <= begin <= end <= ", n));
  return {static_cast<size_t>(first), static_cast<size_t>(last)};
}

// The limits of the two kernels (kernel_table.h).
constexpr int32_t kMaxLogit = 1 << 29;
constexpr int64_t kMaxPaperSpread = 1 << 25;

void check_logit(int32_t logit, size_t row) {
  if (logit <= -kMaxLogit || logit >= kMaxLogit)
    throw InvalidArgument(
        message("logit or running_max of row ", row, " is ", logit, ", expected within +-", kMaxLogit));
}

void check_spread(const int32_t* logits, const KeySpan& span, size_t row) {
  if (span.empty()) return;
  const auto ends = std::minmax_element(logits + span.begin, logits + span.end);
  if (int64_t{*ends.second} - *ends.first > kMaxPaperSpread)
    throw InvalidArgument(message("logits of row ", row, " run from ", *ends.first, " to ", *ends.second,
                                  ", expected at most ", kMaxPaperSpread, " apart"));
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
    const KeySpan span = checked_span(first, last, i, n);
    for (size_t l = span.begin; l < span.end; ++l) check_logit(a[i * n + l], i);
    if (max_in[i] != kNoMax) check_logit(max_in[i], i);
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
    const KeySpan span = checked_span(first, last, i, n);
    check_spread(a + i * n, span, i);
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
