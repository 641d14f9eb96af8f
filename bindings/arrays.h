// Checks of NumPy arrays at the border: exact dtype, C-contiguous, number of dimensions. Nothing is
// converted; what does not fit raises ValueError with the name and what came instead.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "error.h"

namespace intattention::bindings {

namespace py = pybind11;

std::string describe(const py::array& array);  // "float64 (2, 3)", " not C-contiguous" if so

// ndim < 0: any number of dimensions.
template <typename T>
const T* checked(const py::array& array, const char* name, py::ssize_t ndim) {
  const bool fits = py::isinstance<py::array_t<T>>(array) && (array.flags() & py::array::c_style) != 0 &&
                    (ndim < 0 || array.ndim() == ndim);
  if (!fits)
    throw InvalidArgument(message(name, ": expected C-contiguous ", std::string(py::str(py::dtype::of<T>())),
                                  ndim < 0 ? std::string() : message(" with ", ndim, " dimensions"), ", got ",
                                  describe(array)));
  return static_cast<const T*>(array.data());
}

inline size_t dim(const py::array& array, py::ssize_t axis) { return static_cast<size_t>(array.shape(axis)); }

// Raises ValueError unless the array has exactly this shape.
void check_shape(const py::array& array, const char* name, const std::vector<size_t>& shape);

template <typename T>
py::array_t<T> new_array(const std::vector<size_t>& shape) {
  return py::array_t<T>(std::vector<py::ssize_t>(shape.begin(), shape.end()));
}

std::vector<size_t> shape_of(const py::array& array);

}  // namespace intattention::bindings
