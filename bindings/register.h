// One registrar per topic; module.cpp calls them all.
#pragma once

#include <pybind11/pybind11.h>

namespace intattention::bindings {

void register_errors(pybind11::module_& m);
void register_isa(pybind11::module_& m);
void register_threads(pybind11::module_& m);
void register_ops(pybind11::module_& m);
void register_attention(pybind11::module_& m);
void register_attention_study(pybind11::module_& m);
void register_attention_float(pybind11::module_& m);
void register_linear(pybind11::module_& m);
void register_cache(pybind11::module_& m);
void register_model(pybind11::module_& m);
void register_sampling(pybind11::module_& m);
void register_iatt(pybind11::module_& m);

}  // namespace intattention::bindings
