#include "json_reader.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <locale>
#include <sstream>
#include <unordered_set>

#include "error.h"

namespace intattention {

constexpr int kMaxDepth = 64;

class JsonReader::Depth {
 public:
  explicit Depth(JsonReader* reader) : reader_(reader) {
    if (++reader->depth_ > kMaxDepth) reader->fail(message("values are nested deeper than ", kMaxDepth));
  }
  ~Depth() { --reader_->depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  JsonReader* reader_;
};

void JsonReader::fail(const std::string& problem) const {
  throw ModelFileError(message("no valid JSON: ", problem, " (byte ", at_, ")"));
}

void JsonReader::space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
    ++at_;
}

char JsonReader::peek() {
  space();
  if (at_ == text_.size()) fail("the text ends");
  return text_[at_];
}

bool JsonReader::accept(char c) {
  if (peek() != c) return false;
  ++at_;
  return true;
}

void JsonReader::expect(char c) {
  if (!accept(c)) fail(message("expected '", c, "'"));
}

void JsonReader::object(const std::function<void(const std::string& key)>& member) {
  const Depth depth(this);
  std::unordered_set<std::string> seen;
  expect('{');
  if (accept('}')) return;
  do {
    const std::string key = string();
    if (!seen.insert(key).second) fail("a key occurs twice");
    expect(':');
    member(key);
  } while (accept(','));
  expect('}');
}

void JsonReader::array(const std::function<void()>& item) {
  const Depth depth(this);
  expect('[');
  if (accept(']')) return;
  do item();
  while (accept(','));
  expect(']');
}

void JsonReader::fields(Fields readers) {
  object([&](const std::string& key) {
    const auto field = readers.find(key);
    if (field == readers.end()) return skip();
    field->second();
    readers.erase(field);
  });
  if (!readers.empty()) fail(message("the field ", readers.begin()->first, " is missing"));
}

void JsonReader::word(std::string_view expected) {
  if (text_.substr(at_, expected.size()) != expected) fail("unknown word");
  at_ += expected.size();
}

bool JsonReader::take_null() {
  if (peek() != 'n') return false;
  word("null");
  return true;
}

bool JsonReader::boolean() {
  const bool value = peek() == 't';
  word(value ? "true" : "false");
  return value;
}

std::string_view JsonReader::number() {
  peek();
  const size_t start = at_;
  const auto digits = [&] {
    const size_t first = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    if (at_ == first) fail("expected a digit");
    return at_ - first;
  };
  const auto has = [&](std::string_view any) {
    return at_ < text_.size() && any.find(text_[at_]) != std::string_view::npos;
  };
  if (has("-")) ++at_;
  const bool zero = has("0");
  if (digits() > 1 && zero) fail("a number begins with 0");
  if (has(".")) {
    ++at_;
    digits();
  }
  if (has("eE")) {
    ++at_;
    if (has("+-")) ++at_;
    digits();
  }
  return text_.substr(start, at_ - start);
}

uint64_t JsonReader::integer() {
  const std::string_view text = number();
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) fail("expected an integer >= 0 of 64 bits");
  return value;
}

double JsonReader::real() {
  // std::from_chars for double is missing in older libc++; a stream of the classic locale rounds as exactly.
  std::istringstream stream{std::string(number())};
  stream.imbue(std::locale::classic());
  double value = 0;
  if (!(stream >> value) || !std::isfinite(value)) fail("a number is not finite");
  return value;
}

std::vector<double> JsonReader::doubles() {
  std::vector<double> values;
  array([&] { values.push_back(real()); });
  return values;
}

std::vector<float> JsonReader::floats() {
  std::vector<float> values;
  array([&] {
    const double value = real();
    if (std::fabs(value) > std::numeric_limits<float>::max()) fail("a number exceeds float32");
    values.push_back(static_cast<float>(value));
  });
  return values;
}

uint32_t JsonReader::hex4() {
  uint32_t code = 0;
  const std::string_view text = text_.substr(at_, 4);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), code, 16);
  if (text.size() != 4 || error != std::errc() || end != text.data() + 4) fail("expected 4 hexadecimal digits");
  at_ += 4;
  return code;
}

void JsonReader::append_utf8(uint32_t code, std::string* out) const {
  const auto tail = [&](int shift) { out->push_back(static_cast<char>(0x80 | (code >> shift & 0x3f))); };
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xc0 | code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    out->push_back(static_cast<char>(0xe0 | code >> 12));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xf0 | code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

// Behind a backslash.
void JsonReader::escape(std::string* out) {
  if (at_ == text_.size()) fail("the text ends");
  const char c = text_[at_++];
  constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
  if (const size_t index = kNames.find(c); index != std::string_view::npos) {
    out->push_back(kValues[index]);
    return;
  }
  if (c != 'u') fail("unknown escape");
  uint32_t code = hex4();
  if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {
    at_ += 2;
    const uint32_t low = hex4();
    if (low < 0xdc00 || low >= 0xe000) fail("a lone surrogate");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (code >= 0xd800 && code < 0xe000) {
    fail("a lone surrogate");
  }
  append_utf8(code, out);
}

// One character of two to four bytes: shortest form, no surrogates, at most U+10FFFF.
void JsonReader::copy_utf8(std::string* out) {
  const auto byte = [&](size_t i) -> uint32_t {
    return at_ + i < text_.size() ? static_cast<uint8_t>(text_[at_ + i]) : 0;
  };
  const uint32_t lead = byte(0);
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  uint32_t code = lead & (0xffu >> (length + 1));
  bool valid = lead >= 0xc2 && lead <= 0xf4;
  for (size_t i = 1; i < length; ++i) {
    valid = valid && (byte(i) & 0xc0) == 0x80;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kShortest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (!valid || code < kShortest[length] || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff) fail("no UTF-8");
  out->append(text_.substr(at_, length));
  at_ += length;
}

std::string JsonReader::string() {
  std::string out;
  expect('"');
  for (;;) {
    if (at_ == text_.size()) fail("the text ends");
    const auto c = static_cast<uint8_t>(text_[at_]);
    if (c >= 0x80) {
      copy_utf8(&out);
      continue;
    }
    ++at_;
    if (c == '"') return out;
    if (c == '\\')
      escape(&out);
    else if (c < 0x20)
      fail("a control character in a string");
    else
      out.push_back(static_cast<char>(c));
  }
}

void JsonReader::skip() {
  switch (peek()) {
    case '{':
      object([&](const std::string&) { skip(); });
      return;
    case '[':
      array([&] { skip(); });
      return;
    case '"':
      string();
      return;
    case 't':
    case 'f':
      boolean();
      return;
    case 'n':
      word("null");
      return;
    default:
      number();
  }
}

void JsonReader::end() {
  space();
  if (at_ != text_.size()) fail("more text behind the value");
}

}  // namespace intattention
