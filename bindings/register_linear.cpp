#include <limits>
#include <optional>

#include "arrays.h"
#include "dispatch.h"
#include "linear.h"
#include "packing.h"
#include "pool.h"
#include "quantize_weights.h"
#include "register.h"

namespace intattention::bindings {
namespace {

using SharedWeights = std::shared_ptr<PackedWeights>;

const uint16_t* f16_bits(const py::array& array, const char* name, const std::vector<size_t>& shape) {
  const bool f16 = array.dtype().kind() == 'f' && array.dtype().itemsize() == 2;
  if (!f16 || (array.flags() & py::array::c_style) == 0)
    throw InvalidArgument(message(name, ": expected C-contiguous float16, got ", describe(array)));
  check_shape(array, name, shape);
  return static_cast<const uint16_t*>(array.data());
}

SharedWeights make_weights(const std::string& format_name, const py::array& q, const py::array& scale,
                           const std::optional<py::array>& min) {
  LogicalWeights logical{weight_format_from_name(format_name.c_str()), 0, 0, nullptr, nullptr, nullptr};
  if (logical.format == WeightFormat::kW8G32) {
    logical.q = reinterpret_cast<const uint8_t*>(checked<int8_t>(q, "q", 2));
    logical.in_features = dim(q, 1);
  } else {
    logical.q = checked<uint8_t>(q, "q", 3);
    logical.in_features = dim(q, 1) * kGroup;
    check_shape(q, "q", {dim(q, 0), dim(q, 1), kGroup / 2});
  }
  logical.out_features = dim(q, 0);
  const std::vector<size_t> groups{logical.out_features, logical.in_features / kGroup};
  logical.scale = f16_bits(scale, "scale", groups);
  if (min.has_value() != (logical.format == WeightFormat::kW4G32A))
    throw InvalidArgument(message("min goes with format w4g32a only, format is ", format_name));
  if (min) logical.min = f16_bits(*min, "min", groups);
  py::gil_scoped_release release;
  return std::make_shared<PackedWeights>(pack_weights(logical));
}

// Holds the exporter's buffer, so that e.g. a memory map cannot be closed beneath the weights.
SharedBytes borrow(const py::buffer& data) {
  auto* info = new py::buffer_info(data.request());
  const std::shared_ptr<const py::buffer_info> owner(info, [](const py::buffer_info* held) {
    const py::gil_scoped_acquire gil;
    delete held;
  });
  if (info->ndim != 1 || info->itemsize != 1 || (info->size > 1 && info->strides[0] != 1))
    throw InvalidArgument(message("data: expected contiguous bytes with 1 dimension, got ", info->ndim,
                                  " dimensions of ", info->itemsize, "-byte items"));
  return {static_cast<const uint8_t*>(info->ptr), static_cast<size_t>(info->size), owner};
}

SharedWeights weights_from_packed(const std::string& format, size_t out_features, size_t in_features,
                                  const py::buffer& data) {
  return std::make_shared<PackedWeights>(
      borrow_packed_weights(weight_format_from_name(format.c_str()), out_features, in_features, borrow(data)));
}

// (q, scale, min or None) as PackedWeights takes them.
py::tuple quantize(const py::array& w, const std::string& format_name, const std::optional<py::array>& importance) {
  const WeightFormat format = weight_format_from_name(format_name.c_str());
  const float* data = checked<float>(w, "w", 2);
  const size_t n = dim(w, 0), k = dim(w, 1), groups = k / kGroup;
  if (k == 0 || k % kGroup != 0) throw InvalidArgument(message("w: ", k, " columns, expected a multiple of ", kGroup));
  const float* weight = nullptr;
  if (importance) {
    weight = checked<float>(*importance, "importance", 1);
    check_shape(*importance, "importance", {k});
    for (size_t i = 0; i < k; ++i)
      if (!(weight[i] >= 0.0f && weight[i] <= std::numeric_limits<float>::max()))
        throw InvalidArgument(message("importance[", i, "] is ", weight[i], ", expected 0 or more"));
  }
  const bool w8 = format == WeightFormat::kW8G32;
  const py::array q =
      w8 ? py::array(new_array<int8_t>({n, k})) : py::array(new_array<uint8_t>({n, groups, kGroup / 2}));
  const auto f16 = [&] { return py::array(py::dtype("float16"), std::vector<size_t>{n, groups}); };
  const py::array scale = f16();
  py::object min = py::none();
  QuantizedWeights out{static_cast<uint8_t*>(const_cast<void*>(q.data())),
                       static_cast<uint16_t*>(const_cast<void*>(scale.data())), nullptr};
  if (format == WeightFormat::kW4G32A) {
    const py::array minimum = f16();
    out.min = static_cast<uint16_t*>(const_cast<void*>(minimum.data()));
    min = minimum;
  }
  {
    py::gil_scoped_release release;
    quantize_weights(format, n, k, data, weight, out);
  }
  return py::make_tuple(q, scale, min);
}

size_t packed_bytes(const std::string& format, size_t out_features, size_t in_features) {
  return packed_weights_bytes(weight_format_from_name(format.c_str()), out_features, in_features);
}

py::buffer_info buffer_of(const PackedWeights& weights) {
  return py::buffer_info(weights.data.data(), static_cast<py::ssize_t>(weights.data.size()));  // const: read-only
}

py::array_t<float> dequantize_rows(const PackedWeights& weights, const py::array& rows) {
  const int32_t* index = checked<int32_t>(rows, "rows", 1);
  const size_t count = dim(rows, 0);
  py::array_t<float> y = new_array<float>({count, weights.in_features});
  for (size_t i = 0; i < count; ++i) {
    if (index[i] < 0 || static_cast<size_t>(index[i]) >= weights.out_features)
      throw InvalidArgument(message("rows[", i, "] is ", index[i], ", the weights have ", weights.out_features));
    dequantize_packed_row(weights, static_cast<size_t>(index[i]), y.mutable_data() + i * weights.in_features);
  }
  return y;
}

py::array_t<float> linear(const py::array& x, const std::vector<SharedWeights>& parts, ThreadPool* pool) {
  const float* data = checked<float>(x, "x", 2);
  const LinearW4A8 layer(std::vector<LinearW4A8::Part>(parts.begin(), parts.end()));
  const size_t m = dim(x, 0), k = layer.in_features();
  check_shape(x, "x", {m, k});
  py::array_t<float> y = new_array<float>({m, layer.out_features()});
  float* out = y.mutable_data();
  py::gil_scoped_release release;
  Activations activations(m, k);
  for (size_t i = 0; i < m; ++i)
    if (!activations.quantize_row(active_table(), i, data + i * k))
      throw InvalidArgument(message("x: row ", i, " holds NaN or Inf or a magnitude beyond 1.6e32"));
  layer.forward(pool_or_default(pool), m, activations, 0, out);
  return y;
}

}  // namespace

void register_linear(py::module_& m) {
  m.attr("WEIGHT_LAYOUT") = kWeightLayout;
  py::class_<PackedWeights, SharedWeights>(m, "PackedWeights", py::buffer_protocol())
      .def(py::init(&make_weights), py::arg("format"), py::arg("q").noconvert(), py::arg("scale").noconvert(),
           py::arg("min").noconvert() = py::none())
      .def_static("from_packed", &weights_from_packed, py::arg("format"), py::arg("out_features"),
                  py::arg("in_features"), py::arg("data"))
      .def_static("packed_bytes", &packed_bytes, py::arg("format"), py::arg("out_features"), py::arg("in_features"))
      .def_buffer(&buffer_of)
      .def_property_readonly("format", [](const PackedWeights& w) { return weight_format_name(w.format); })
      .def_property_readonly("shape",
                             [](const PackedWeights& w) { return py::make_tuple(w.out_features, w.in_features); })
      .def_property_readonly("nbytes", [](const PackedWeights& w) { return w.data.size(); })
      .def("dequantize_rows", &dequantize_rows, py::arg("rows").noconvert());
  m.def("quantize_weights", &quantize, py::arg("w").noconvert(), py::arg("format"),
        py::arg("importance").noconvert() = py::none());
  m.def("linear", &linear, py::arg("x").noconvert(), py::arg("parts"), py::arg("pool") = py::none());
}

}  // namespace intattention::bindings
