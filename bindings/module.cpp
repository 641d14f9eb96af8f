#include "kernel_table.h"
#include "register.h"

PYBIND11_MODULE(_core, m) {
  using namespace intattention;
  m.doc() = "The compiled core of intattention. Private: use intattention and intattention.ops.";
  m.attr("__version__") = INTATTENTION_VERSION;
#if defined(__clang__)
  m.attr("compiler") = "clang " __clang_version__;
#else
  m.attr("compiler") = "gcc " __VERSION__;
#endif
  m.attr("KEY_BLOCK") = kKeyBlock;
  m.attr("KEY_RANGE") = kKeyRange;
  m.attr("GROUP") = kGroup;
  bindings::register_errors(m);
  bindings::register_isa(m);
  bindings::register_threads(m);
  bindings::register_ops(m);
  bindings::register_linear(m);
  bindings::register_cache(m);
  bindings::register_model(m);
  bindings::register_sampling(m);
  bindings::register_iatt(m);
  bindings::register_attention(m);
  bindings::register_attention_study(m);
  bindings::register_attention_float(m);
}
