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

// message("q_len ", 3, " exceeds ", 2)
template <typename... Args>
std::string message(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

}  // namespace intattention
