#include "arrays.h"

namespace intattention::bindings {
namespace {

std::string text(const std::vector<size_t>& shape) {
  std::string out = "(";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + (shape.size() == 1 ? ",)" : ")");
}

}  // namespace

std::vector<size_t> shape_of(const py::array& array) {
  return std::vector<size_t>(array.shape(), array.shape() + array.ndim());
}

std::string describe(const py::array& array) {
  const bool contiguous = (array.flags() & py::array::c_style) != 0;
  return std::string(py::str(array.dtype())) + " " + text(shape_of(array)) + (contiguous ? "" : " not C-contiguous");
}

void check_shape(const py::array& array, const char* name, const std::vector<size_t>& shape) {
  if (shape_of(array) != shape)
    throw InvalidArgument(message(name, ": expected shape ", text(shape), ", got ", text(shape_of(array))));
}

}  // namespace intattention::bindings
