// A decoder from a packed file: `intattention pack` writes its description under the name kDecoderText
// (intattention/models/description.py), so that nothing here knows an architecture.
#pragma once

#include <memory>

#include "decoder.h"
#include "iatt_file.h"

namespace intattention {

constexpr const char* kDecoderText = "intattention.decoder.json";

struct IattModel {
  std::shared_ptr<Decoder> decoder;
  size_t context;                // tokens that a cache may hold
  size_t token_count;            // ids that are tokens; the logits may have padding behind them
  std::vector<int32_t> end_ids;  // tokens that end a turn
};

// context: 0 for the model's own; rotations of some models depend on it. The weights stay mapped. Throws
// InvalidArgument for a context that the file does not describe; ModelFileError; UnsupportedModel if the file has no
// description.
IattModel load_iatt_model(const IattFile& file, size_t context, const std::shared_ptr<ThreadPool>& pool);

}  // namespace intattention
