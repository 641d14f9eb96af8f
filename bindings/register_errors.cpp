#include "error.h"
#include "register.h"

namespace intattention::bindings {

namespace py = pybind11;

// InvalidArgument is a std::invalid_argument, which pybind11 makes a ValueError; UnsupportedIsa becomes
// a RuntimeError and std::bad_alloc a MemoryError in the same way.
void register_errors(py::module_& m) {
  py::register_exception<ContextOverflow>(m, "ContextOverflowError", PyExc_ValueError);
  py::register_exception<NumericError>(m, "NumericError", PyExc_ArithmeticError);
}

}  // namespace intattention::bindings
