// The module _cuda: the decoder on a GPU. Takes the Decoder of _core, which has checked the weights, and offers the
// same calls.
#include "arrays.h"
#include "available.h"
#include "device_decoder.h"
#include "logit_rows.h"

namespace intattention::bindings {
namespace {

using cuda::DeviceCache;
using cuda::DeviceDecoder;

py::array_t<float> forward(DeviceDecoder& decoder, const py::array& ids, DeviceCache& cache,
                           const std::string& logits) {
  const int32_t* id_data = checked<int32_t>(ids, "ids", 1);
  const size_t count = dim(ids, 0);
  const LogitRows rows = logit_rows(logits);
  py::array_t<float> out = new_array<float>({logit_row_count(rows, count), decoder.config().vocab_size});
  float* out_data = out.mutable_data();
  py::gil_scoped_release release;
  decoder.forward(id_data, count, cache, rows, out_data);
  return out;
}

py::array_t<int32_t> greedy(DeviceDecoder& decoder, int32_t id, size_t count, DeviceCache& cache, size_t limit) {
  py::array_t<int32_t> out = new_array<int32_t>({count});
  int32_t* out_data = out.mutable_data();
  py::gil_scoped_release release;
  decoder.greedy(id, count, limit == 0 ? decoder.config().vocab_size : limit, cache, out_data);
  return out;
}

py::dict device_facts() {
  const cuda::DeviceFacts f = cuda::device_facts();
  py::dict out;
  out["name"] = f.name;
  out["compute_capability"] = py::make_tuple(f.major, f.minor);
  out["multiprocessors"] = f.multiprocessors;
  out["memory_bytes"] = f.memory_bytes;
  out["free_bytes"] = f.free_bytes;
  out["l2_bytes"] = f.l2_bytes;
  out["driver"] = f.driver;
  out["runtime"] = f.runtime;
  return out;
}

}  // namespace
}  // namespace intattention::bindings

PYBIND11_MODULE(_cuda, m) {
  using namespace intattention::bindings;
  namespace cuda = intattention::cuda;
  m.doc() = "The CUDA back end of intattention. Private: use intattention.cuda.";
  const py::module_ core = py::module_::import("intattention._core");  // Decoder, its configuration, its exceptions
  // The exceptions of _core, not ones of the same name.
  static const py::handle overflow = py::object(core.attr("ContextOverflowError")).release();
  static const py::handle numeric = py::object(core.attr("NumericError")).release();
  py::register_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const intattention::ContextOverflow& e) {
      py::set_error(overflow, e.what());
    } catch (const intattention::NumericError& e) {
      py::set_error(numeric, e.what());
    }
  });
  m.def("why_unavailable", &cuda::why_unavailable, py::call_guard<py::gil_scoped_release>());
  m.def("device_facts", &device_facts);
  py::class_<cuda::DeviceCache>(m, "KVCache")
      .def("__len__", &cuda::DeviceCache::length)
      .def_property_readonly("max_len", &cuda::DeviceCache::max_len)
      .def_property_readonly("nbytes", &cuda::DeviceCache::nbytes)
      .def("truncate", &cuda::DeviceCache::truncate, py::arg("length"));
  py::class_<cuda::DeviceDecoder>(m, "Decoder")
      .def(py::init<const intattention::Decoder&>(), py::arg("model"), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("config", &cuda::DeviceDecoder::config, py::return_value_policy::reference_internal)
      .def_property_readonly("nbytes", &cuda::DeviceDecoder::nbytes)
      .def("new_cache", &cuda::DeviceDecoder::new_cache, py::arg("max_len"))
      .def("forward", &forward, py::arg("ids").noconvert(), py::arg("cache"), py::arg("logits") = "last")
      .def("greedy", &greedy, py::arg("id"), py::arg("count"), py::arg("cache"), py::arg("limit") = 0)
      .def("use_graphs", &cuda::DeviceDecoder::use_graphs, py::arg("on"));
}
