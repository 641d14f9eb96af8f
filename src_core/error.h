// What the core throws. The bindings turn each into a Python exception of the same meaning.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace intattention {

struct InvalidArgument : std::invalid_argument {  // ValueError
  using std::invalid_argument::invalid_argument;
};
struct ContextOverflow : std::length_error {  // intattention.ContextOverflowError
  using std::length_error::length_error;
};
struct NumericError : std::runtime_error {  // intattention.NumericError: NaN or Inf appeared
  using std::runtime_error::runtime_error;
};
struct UnsupportedIsa : std::runtime_error {  // RuntimeError
  using std::runtime_error::runtime_error;
};
struct Cancelled : std::runtime_error {  // a hook of the caller asked to stop
  using std::runtime_error::runtime_error;
};
struct FileError : std::runtime_error {  // a file cannot be opened or mapped
  using std::runtime_error::runtime_error;
};
struct ModelFileError : std::runtime_error {  // a model file is damaged or hostile
  using std::runtime_error::runtime_error;
};
struct UnsupportedModel : std::runtime_error {  // a model file of another version, layout or kind
  using std::runtime_error::runtime_error;
};

// message("q_len ", 3, " exceeds ", 2)
template <typename... Args>
std::string message(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

}  // namespace intattention
