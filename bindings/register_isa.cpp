#include <pybind11/stl.h>

#include <map>
#include <string>
#include <vector>

#include "cpu_features.h"
#include "dispatch.h"
#include "register.h"

namespace intattention::bindings {
namespace {

namespace py = pybind11;

std::vector<std::string> names(const std::vector<const KernelTable*>& tables) {
  std::vector<std::string> out;
  for (const KernelTable* table : tables) out.emplace_back(table->name);
  return out;
}

// The table an op of `active` comes from: the lowest one in priority that has the same pointer.
template <typename Member>
std::string origin(const char* op, Member member) {
  const KernelTable& active = active_table();
  if (active.*member == nullptr) return "none";
  std::string isa = active.name;
  for (const KernelTable* table : built_tables())
    if (table->*member == active.*member) isa = table->name;
  return std::string(op) + "_" + isa;
}

std::map<std::string, std::string> kernel_names() {
  return {{"gemm_s8s8s32", origin("gemm_s8s8s32", &KernelTable::gemm_s8s8s32)},
          {"index_softmax_s32u8", origin("index_softmax_s32u8", &KernelTable::index_softmax_s32u8)},
          {"gemm_u8s8s32", origin("gemm_u8s8s32", &KernelTable::gemm_u8s8s32)},
          {"gemm_w4a8", origin("gemm_w4a8", &KernelTable::gemm_w4a8)},
          {"gemm_w8a8", origin("gemm_w8a8", &KernelTable::gemm_w8a8)},
          {"quantize_f32s8", origin("quantize_f32s8", &KernelTable::quantize_f32s8)},
          {"rmsnorm_f32", origin("rmsnorm_f32", &KernelTable::rmsnorm_f32)},
          {"rope_f32", origin("rope_f32", &KernelTable::rope_f32)},
          {"swiglu_f32", origin("swiglu_f32", &KernelTable::swiglu_f32)},
          {"accumulate_s32f32", origin("accumulate_s32f32", &KernelTable::accumulate_s32f32)},
          {"softmax_s32s8", origin("softmax_s32s8", &KernelTable::softmax_s32s8)},
          {"paper_softmax_s32u8", origin("paper_softmax_s32u8", &KernelTable::paper_softmax_s32u8)},
          {"gemm_f32f32f32", origin("gemm_f32f32f32", &KernelTable::gemm_f32f32f32)},
          {"softmax_f32f32", origin("softmax_f32f32", &KernelTable::softmax_f32f32)},
          {"narrow_f32f16", origin("narrow_f32f16", &KernelTable::narrow_f32f16)},
          {"widen_f16f32", origin("widen_f16f32", &KernelTable::widen_f16f32)},
          // FEAT_FP16 is not a table: their one version is named after the feature
          {"gemm_f16f16f32", active_table().gemm_f16f16f32 != nullptr ? "gemm_f16f16f32_fp16" : "none"},
          {"softmax_f32f16", active_table().softmax_f32f16 != nullptr ? "softmax_f32f16_fp16" : "none"}};
}

}  // namespace

void register_isa(py::module_& m) {
  m.def("built_isas", [] { return names(built_tables()); });
  m.def("available_isas", [] { return names(runnable_tables()); });
  m.def("active_isa", [] { return std::string(active_table().name); });
  m.def("use_isa", &use_isa, py::arg("name"));
  m.def("cpu_features", [] { return cpu_feature_names(cpu_features()); });
  m.def("kernel_names", &kernel_names);
}

}  // namespace intattention::bindings
