// A strict JSON reader that calls back instead of building a tree: what nobody asks for is checked and skipped, so
// that a header with a vocabulary of 10 MB costs no memory.
//
//   JsonReader json(text);
//   json.object([&](const std::string& key) {
//     if (key == "shape") json.array([&] { shape.push_back(json.integer()); });
//     else json.skip();
//   });
//   json.end();
//
// UTF-8 is checked, a key may occur once, \u escapes must be scalar values, depth is limited. Everything throws
// ModelFileError with the byte at which reading stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace intattention {

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  // The next value must be of that kind. `member` reads exactly one value.
  void object(const std::function<void(const std::string& key)>& member);
  void array(const std::function<void()>& item);
  // An object whose members are read by key: every key must occur, keys that are not listed are skipped.
  using Fields = std::map<std::string, std::function<void()>>;
  void fields(Fields readers);
  std::string string();
  uint64_t integer();  // 0 .. 2^64 - 1, without point or exponent
  double real();       // any finite number
  bool boolean();
  std::vector<float> floats();    // an array of numbers
  std::vector<double> doubles();  // an array of numbers
  bool take_null();               // whether the next value was null, which is then read
  char peek();                    // first character of the next value: { [ " t f n - or a digit
  void skip();                    // any value
  void end();                     // nothing may follow

  [[noreturn]] void fail(const std::string& problem) const;

 private:
  class Depth;

  void space();
  bool accept(char c);
  void expect(char c);
  void word(std::string_view expected);
  std::string_view number();
  void escape(std::string* out);
  uint32_t hex4();
  void append_utf8(uint32_t code, std::string* out) const;
  void copy_utf8(std::string* out);

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace intattention
