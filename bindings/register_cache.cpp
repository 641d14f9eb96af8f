#include "arrays.h"
#include "kv_rows.h"
#include "register.h"

namespace intattention::bindings {
namespace {

// k, k_scale, v, v_log_scale of a layer
using RowArrays = std::tuple<py::array, py::array, py::array, py::array>;

py::tuple rows(const KVCache& cache, size_t layer, size_t count) {
  if (count > cache.length())  // before memory is taken for them
    throw InvalidArgument(message("cache: ", count, " rows of ", cache.length()));
  const size_t heads = cache.n_kv_heads(), d = cache.head_dim();
  py::array_t<int8_t> k = new_array<int8_t>({heads, count, d}), v = new_array<int8_t>({heads, count, d});
  py::array_t<float> k_scale = new_array<float>({heads, count});
  py::array_t<int16_t> v_log_scale = new_array<int16_t>({heads, count});
  read_rows(cache, layer, count, k.mutable_data(), k_scale.mutable_data(), v.mutable_data(),
            v_log_scale.mutable_data());
  return py::make_tuple(k, k_scale, v, v_log_scale);
}

void append(KVCache& cache, const std::vector<RowArrays>& layers) {
  std::vector<LayerRows> out;
  size_t count = 0;
  for (const auto& [k, k_scale, v, v_log_scale] : layers) {
    out.push_back({checked<int8_t>(k, "k", 3), checked<float>(k_scale, "k_scale", 2), checked<int8_t>(v, "v", 3),
                   checked<int16_t>(v_log_scale, "v_log_scale", 2)});
    if (out.size() == 1) count = dim(k, 1);
    const size_t heads = cache.n_kv_heads(), d = cache.head_dim();
    check_shape(k, "k", {heads, count, d});
    check_shape(k_scale, "k_scale", {heads, count});
    check_shape(v, "v", {heads, count, d});
    check_shape(v_log_scale, "v_log_scale", {heads, count});
  }
  py::gil_scoped_release release;
  append_rows(cache, out, count);
}

}  // namespace

void register_cache(py::module_& m) {
  py::class_<KVCache, std::shared_ptr<KVCache>>(m, "KVCache")
      .def(py::init<size_t, size_t, size_t, size_t>(), py::arg("num_layers"), py::arg("num_key_value_heads"),
           py::arg("head_dim"), py::arg("max_len"))
      .def("__len__", &KVCache::length)
      .def_property_readonly("max_len", &KVCache::max_len)
      .def_property_readonly("nbytes", &KVCache::nbytes)
      .def("bytes_for", &KVCache::bytes_for, py::arg("length"))
      .def("truncate", &KVCache::truncate, py::arg("length"))
      .def("fork", &KVCache::fork)
      .def("rows", &rows, py::arg("layer"), py::arg("count"))
      .def("append_rows", &append, py::arg("layers"));
}

}  // namespace intattention::bindings
