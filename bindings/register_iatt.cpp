// The decoder that the C API makes of a packed file; the tests compare it with the one that Python builds.
#include "arrays.h"
#include "iatt_model.h"
#include "register.h"

namespace intattention::bindings {

void register_iatt(py::module_& m) {
  m.def(
      "decoder_from_iatt",
      [](const std::string& path, size_t context, const std::shared_ptr<ThreadPool>& pool) {
        IattModel model = load_iatt_model(IattFile(path), context, pool);
        return py::make_tuple(model.decoder, model.context, model.token_count, model.end_ids);
      },
      py::arg("path"), py::arg("context"), py::arg("pool").none(false));
}

}  // namespace intattention::bindings
