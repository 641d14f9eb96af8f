#include <pybind11/stl.h>

#include <optional>

#include "cpu_features.h"
#include "pool.h"
#include "register.h"

namespace intattention::bindings {

namespace py = pybind11;

ThreadPool& pool_or_default(ThreadPool* pool) {
  if (pool != nullptr) return *pool;
  // Never destroyed: joining threads while the interpreter or the process ends can hang.
  static ThreadPool* const shared = new ThreadPool(0, {});
  return *shared;
}

void register_threads(py::module_& m) {
  py::class_<ThreadPool, std::shared_ptr<ThreadPool>>(m, "ThreadPool")
      .def(py::init([](int threads, std::optional<std::vector<int>> cpus) {
             return std::make_shared<ThreadPool>(threads, cpus.value_or(std::vector<int>()));
           }),
           py::arg("threads") = 0, py::arg("cpus") = py::none())
      .def_property_readonly("threads", &ThreadPool::threads)
      .def_property_readonly("cpus", &ThreadPool::cpus);
  m.def("performance_cpus", &performance_cpus);
}

}  // namespace intattention::bindings
