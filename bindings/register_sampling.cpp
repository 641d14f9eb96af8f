#include "arrays.h"
#include "register.h"
#include "sampler.h"

namespace intattention::bindings {

void register_sampling(py::module_& m) {
  py::class_<Sampler>(m, "Sampler")
      .def(py::init([](double temperature, double top_p, uint64_t top_k, double min_p, double repetition_penalty,
                       uint64_t seed) {
             return Sampler(SamplingParams{temperature, top_p, min_p, repetition_penalty, top_k, seed});
           }),
           py::kw_only(), py::arg("temperature"), py::arg("top_p"), py::arg("top_k"), py::arg("min_p"),
           py::arg("repetition_penalty"), py::arg("seed"))
      .def("see", &Sampler::see, py::arg("token"))
      .def(
          "choose",
          [](Sampler& sampler, const py::array& logits) {
            return sampler.choose(checked<float>(logits, "logits", 1), dim(logits, 0));
          },
          py::arg("logits").noconvert())
      .def(
          "candidates",
          [](const Sampler& sampler, const py::array& logits) {
            const float* data = checked<float>(logits, "logits", 1);
            if (dim(logits, 0) == 0) throw InvalidArgument("sampling: no logits");
            const Candidates found = sampler.candidates(data, dim(logits, 0));
            const auto count = static_cast<py::ssize_t>(found.ids.size());
            return py::make_tuple(py::array_t<int32_t>(count, found.ids.data()),
                                  py::array_t<double>(count, found.probabilities.data()));
          },
          py::arg("logits").noconvert());
}

}  // namespace intattention::bindings
