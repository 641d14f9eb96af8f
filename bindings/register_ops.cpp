// The kernels of the active table on NumPy arrays, for tests and study.
#include "arrays.h"
#include "dispatch.h"
#include "index_scale.h"
#include "packing.h"
#include "register.h"

namespace intattention::bindings {
namespace {

constexpr size_t kMaxGemmK = 65536;  // s32 sums of u8 x s8 cannot overflow

size_t round_up(size_t n, size_t step) { return (n + step - 1) / step * step; }

// Packs b, pads k, runs the gemm and drops the padding columns.
template <typename A, typename Gemm>
py::array_t<int32_t> gemm(const py::array& a, const py::array& b, Gemm run) {
  const A* a_data = checked<A>(a, "a", 2);
  const int8_t* b_data = checked<int8_t>(b, "b", 2);
  const size_t m = dim(a, 0), n = dim(b, 0), k = dim(a, 1);
  check_shape(b, "b", {n, k});
  if (m == 0 || n == 0 || k == 0 || k > kMaxGemmK)
    throw InvalidArgument(message("gemm: m ", m, ", n ", n, ", k ", k, ": each at least 1, k at most ", kMaxGemmK));
  py::array_t<int32_t> c = new_array<int32_t>({m, n});
  int32_t* c_data = c.mutable_data();
  py::gil_scoped_release release;
  const KernelTable& table = active_table();
  const uint32_t inner = table.attention_inner;
  const size_t depth = round_up(k, inner), columns = round_up(n, kTileRows);
  const B8Layout layout{inner, kTileRows * depth};
  AlignedBuffer packed(pack_b8_bytes(n, layout)), rows(m * depth * sizeof(A)), out(m * columns * sizeof(int32_t));
  pack_b8(n, k, b_data, k, layout, packed.as<int8_t>());
  for (size_t i = 0; i < m; ++i) std::copy_n(a_data + i * k, k, rows.as<A>() + i * depth);
  run(table)(m, n, depth, rows.as<A>(), depth, packed.as<int8_t>(), layout.tile_stride, out.as<int32_t>(), columns);
  for (size_t i = 0; i < m; ++i) std::copy_n(out.as<int32_t>() + i * columns, n, c_data + i * n);
  return c;
}

template <typename T>
T in_range(T value, T low, T high, const char* name, size_t row) {
  if (value < low || value > high)
    throw InvalidArgument(message(name, "[", row, "] is ", value, ", expected ", low, " to ", high));
  return value;
}

py::tuple index_softmax(const py::array& logits, const py::array& key_ratio, const py::array& log_scale,
                        const py::array& sum_weight, const py::array& begin, const py::array& end, int narrow,
                        const py::array& factor, const py::array& lshift, const py::array& running_max) {
  const int32_t* a = checked<int32_t>(logits, "logits", 2);
  const size_t m = dim(logits, 0), n = dim(logits, 1), padded = round_up(n, 16);
  if (n == 0 || n > kKeyBlock) throw InvalidArgument(message("logits: ", n, " keys, expected 1 to ", kKeyBlock));
  const int16_t* r = checked<int16_t>(key_ratio, "key_ratio", 1);
  const int16_t* l = checked<int16_t>(log_scale, "log_scale", 1);
  const uint16_t* w = checked<uint16_t>(sum_weight, "sum_weight", 1);
  check_shape(key_ratio, "key_ratio", {n});
  check_shape(log_scale, "log_scale", {n});
  check_shape(sum_weight, "sum_weight", {n});
  for (size_t j = 0; j < n; ++j) {
    in_range<int>(r[j], 0, 32767, "key_ratio", j);
    in_range<int>(l[j], -16384, 16383, "log_scale", j);
    in_range<int>(w[j], 0, kSumWeightOne, "sum_weight", j);
  }
  in_range(narrow, 0, 15, "narrow", 0);
  const int32_t* first = checked<int32_t>(begin, "begin", 1);
  const int32_t* last = checked<int32_t>(end, "end", 1);
  const int16_t* f = checked<int16_t>(factor, "factor", 1);
  const int32_t* e = checked<int32_t>(lshift, "lshift", 1);
  const int32_t* max_in = checked<int32_t>(running_max, "running_max", 1);
  for (const py::array* rows : {&begin, &end, &factor, &lshift, &running_max}) check_shape(*rows, "row argument", {m});

  py::array_t<uint8_t> probs = new_array<uint8_t>({m, n});
  py::array_t<int32_t> max = new_array<int32_t>({m});
  py::array_t<uint32_t> sum = new_array<uint32_t>({m});
  AlignedBuffer block(padded * sizeof(int32_t)), ratios(padded * 2), logs(padded * 2);
  AlignedBuffer weight_low(padded), weight_high(padded), counts(padded * 2), out(padded);
  std::copy_n(r, n, ratios.as<int16_t>());
  std::copy_n(l, n, logs.as<int16_t>());
  for (size_t j = 0; j < n; ++j) {
    weight_low.data()[j] = static_cast<uint8_t>(w[j] & 0xff);
    weight_high.data()[j] = static_cast<uint8_t>(w[j] >> 8);
  }
  const IndexSoftmaxKeys keys{ratios.as<int16_t>(), logs.as<int16_t>(), weight_low.data(), weight_high.data()};
  for (size_t i = 0; i < m; ++i) {
    const int32_t stop = in_range(last[i], 0, static_cast<int32_t>(n), "end", i);
    const int32_t start = in_range(first[i], 0, stop, "begin", i);
    const int32_t running = max_in[i] == kNoMax ? kNoMax : in_range(max_in[i], -32768, 32767, "running_max", i);
    IndexSoftmaxRow row{static_cast<uint32_t>(start),
                        static_cast<uint32_t>(stop),
                        narrow,
                        in_range(e[i], 0, 15, "lshift", i),
                        static_cast<int16_t>(in_range<int>(f[i], 0, 32767, "factor", i)),
                        running,
                        0};
    std::copy_n(a + i * n, n, block.as<int32_t>());
    active_table().index_softmax_s32u8(padded, block.as<int32_t>(), &keys, &row, counts.as<int16_t>(), out.data());
    std::copy_n(out.data(), n, probs.mutable_data() + i * n);
    max.mutable_data()[i] = row.max;
    sum.mutable_data()[i] = row.sum;
  }
  return py::make_tuple(probs, max, sum);
}

py::tuple quantize(const py::array& x, size_t group) {
  const float* data = checked<float>(x, "x", -1);
  std::vector<size_t> shape = shape_of(x);
  if (group == 0 || group % 8 != 0) throw InvalidArgument(message("group ", group, " must be a multiple of 8"));
  if (shape.empty() || shape.back() == 0 || shape.back() % group != 0)
    throw InvalidArgument(message("x: the last dimension of ", describe(x), " is not a multiple of group ", group));
  py::array_t<int8_t> q = new_array<int8_t>(shape);
  shape.back() /= group;
  py::array_t<float> scale = new_array<float>(shape);
  py::array_t<int32_t> sum = new_array<int32_t>(shape);
  const size_t groups = static_cast<size_t>(scale.size());
  int8_t* q_data = q.mutable_data();
  float* scale_data = scale.mutable_data();
  int32_t* sum_data = sum.mutable_data();
  {
    py::gil_scoped_release release;
    active_table().quantize_f32s8(groups, group, data, q_data, scale_data, sum_data);
  }
  return py::make_tuple(q, scale, sum);
}

void check_multiple(const char* name, size_t value, size_t step) {
  if (value == 0 || value % step != 0)
    throw InvalidArgument(message(name, ": the last dimension ", value, " is not a multiple of ", step));
}

py::array_t<float> rmsnorm(const py::array& x, const py::array& weight, float eps) {
  const float* data = checked<float>(x, "x", 2);
  const float* w = checked<float>(weight, "weight", 1);
  const size_t m = dim(x, 0), n = dim(x, 1);
  check_multiple("x", n, 8);
  check_shape(weight, "weight", {n});
  if (!(eps >= 0.0f)) throw InvalidArgument(message("eps is ", eps, ", expected >= 0"));
  py::array_t<float> y = new_array<float>({m, n});
  for (size_t i = 0; i < m; ++i) active_table().rmsnorm_f32(n, data + i * n, w, eps, y.mutable_data() + i * n);
  return y;
}

py::array_t<float> rope(const py::array& x, const py::array& cos, const py::array& sin) {
  const float* data = checked<float>(x, "x", 2);
  const float* c = checked<float>(cos, "cos", 2);
  const float* s = checked<float>(sin, "sin", 2);
  const size_t m = dim(x, 0), n = dim(x, 1);
  check_multiple("x", n, 16);
  check_shape(cos, "cos", {m, n / 2});
  check_shape(sin, "sin", {m, n / 2});
  py::array_t<float> y = new_array<float>({m, n});
  float* out = y.mutable_data();
  std::copy_n(data, m * n, out);
  for (size_t i = 0; i < m; ++i) active_table().rope_f32(n, c + i * (n / 2), s + i * (n / 2), out + i * n);
  return y;
}

py::array_t<float> swiglu(const py::array& gate, const py::array& up) {
  const float* g = checked<float>(gate, "gate", 2);
  const float* u = checked<float>(up, "up", 2);
  const size_t m = dim(gate, 0), n = dim(gate, 1);
  check_multiple("gate", n, 8);
  check_shape(up, "up", {m, n});
  py::array_t<float> y = new_array<float>({m, n});
  active_table().swiglu_f32(m * n, g, u, y.mutable_data());
  return y;
}

py::array_t<float> accumulate(const py::array& sum, const py::array& out, float decay, float scale) {
  const int32_t* s = checked<int32_t>(sum, "sum", 2);
  const float* o = checked<float>(out, "out", 2);
  const size_t m = dim(sum, 0), n = dim(sum, 1);
  check_multiple("sum", n, 8);
  check_shape(out, "out", {m, n});
  py::array_t<float> y = new_array<float>({m, n});
  std::copy_n(o, m * n, y.mutable_data());
  active_table().accumulate_s32f32(m * n, decay, scale, s, y.mutable_data());
  return y;
}

}  // namespace

void register_ops(py::module_& m) {
  m.def(
      "gemm_s8s8s32",
      [](const py::array& a, const py::array& b) {
        return gemm<int8_t>(a, b, [](const KernelTable& table) { return table.gemm_s8s8s32; });
      },
      py::arg("a").noconvert(), py::arg("b").noconvert());
  m.def(
      "gemm_u8s8s32",
      [](const py::array& a, const py::array& b) {
        return gemm<uint8_t>(a, b, [](const KernelTable& table) { return table.gemm_u8s8s32; });
      },
      py::arg("a").noconvert(), py::arg("b").noconvert());
  m.def("index_softmax_s32u8", &index_softmax, py::arg("logits").noconvert(), py::arg("key_ratio").noconvert(),
        py::arg("log_scale").noconvert(), py::arg("sum_weight").noconvert(), py::arg("begin").noconvert(),
        py::arg("end").noconvert(), py::arg("narrow"), py::arg("factor").noconvert(), py::arg("lshift").noconvert(),
        py::arg("running_max").noconvert());
  m.def("quantize_f32s8", &quantize, py::arg("x").noconvert(), py::arg("group"));
  m.def("rmsnorm_f32", &rmsnorm, py::arg("x").noconvert(), py::arg("weight").noconvert(), py::arg("eps"));
  m.def("rope_f32", &rope, py::arg("x").noconvert(), py::arg("cos").noconvert(), py::arg("sin").noconvert());
  m.def("accumulate_s32f32", &accumulate, py::arg("sum").noconvert(), py::arg("out").noconvert(), py::arg("decay"),
        py::arg("scale"));
  m.def("swiglu_f32", &swiglu, py::arg("gate").noconvert(), py::arg("up").noconvert());
}

}  // namespace intattention::bindings
