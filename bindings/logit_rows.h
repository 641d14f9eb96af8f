// The argument `logits` of a decoder's forward().
#pragma once

#include <string>

#include "decoder_pass.h"
#include "error.h"

namespace intattention::bindings {

inline LogitRows logit_rows(const std::string& logits) {
  if (logits == "last") return LogitRows::kLast;
  if (logits == "all") return LogitRows::kAll;
  if (logits == "none") return LogitRows::kNone;
  throw InvalidArgument(message("logits is '", logits, "', expected 'last', 'all' or 'none'"));
}

}  // namespace intattention::bindings
