#include "iatt_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "crc32.h"
#include "error.h"
#include "json_reader.h"
#include "mapped_file.h"

namespace intattention {
namespace {

constexpr char kMagic[] = "IATT\r\n\x1a\n";
constexpr size_t kPreludeBytes = 64;
constexpr uint32_t kNewestVersion = 2;  // 1 had no sections
constexpr uint64_t kMaxHeaderBytes = uint64_t{1} << 28;

template <typename T>
T load(const uint8_t* p) {  // little-endian, like every CPU this is built for
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

size_t aligned(size_t offset) {
  return (offset + AlignedBuffer::kAlignment - 1) / AlignedBuffer::kAlignment * AlignedBuffer::kAlignment;
}

size_t tensor_bytes(const IattFile::Tensor& tensor) {
  if (tensor.format != "f32") {
    if (tensor.shape.size() != 2) throw InvalidArgument(message(tensor.shape.size(), " dimensions, expected 2"));
    return packed_weights_bytes(weight_format_from_name(tensor.format.c_str()), tensor.shape[0], tensor.shape[1]);
  }
  if (tensor.shape.size() != 1 || tensor.shape[0] == 0 || tensor.shape[0] > size_t{1} << 31)
    throw InvalidArgument("no vector");
  return tensor.shape[0] * sizeof(float);
}

// A text, or where a tensor lies.
struct Section {
  std::string name;
  size_t offset, bytes;
  uint32_t crc32;
};

// The JSON header of a file whose tensors and sections fill the bytes before `end`.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, size_t end) : json_(text), end_(end) {}

  std::string layout;
  std::map<std::string, IattFile::Tensor> tensors;
  std::vector<Section> sections;
  std::map<std::string, std::string> texts;  // of the metadata

  void read() {
    bool any_tensors = false;
    json_.object([&](const std::string& key) {
      if (key == "layout") {
        layout = json_.string();
      } else if (key == "metadata") {
        metadata();
      } else if (key == "tensors") {
        any_tensors = true;
        json_.array([&] { tensor(); });
      } else if (key == "sections") {
        if (!any_tensors) json_.fail("sections before the tensors");
        json_.array([&] { section(); });
      } else {
        json_.skip();
      }
    });
    json_.end();
    if (layout.empty() || !any_tensors) json_.fail("the layout or the tensors are missing");
    if (position_ != end_) json_.fail(message("the tensors end at byte ", position_, ", the header begins at ", end_));
  }

 private:
  void metadata() {
    json_.object([&](const std::string& name) {
      if (json_.peek() == '"')
        texts[name] = json_.string();
      else
        json_.skip();
    });
  }

  void tensor() {
    Section place{};
    IattFile::Tensor tensor{};
    JsonReader::Fields fields = place_fields(&place);
    fields["format"] = [&] { tensor.format = json_.string(); };
    fields["shape"] = [&] { json_.array([&] { tensor.shape.push_back(json_.integer()); }); };
    json_.fields(std::move(fields));
    try {
      tensor.bytes = tensor_bytes(tensor);
    } catch (const InvalidArgument& error) {
      json_.fail(message("tensor ", place.name, ": ", error.what()));
    }
    if (place.bytes != tensor.bytes)
      json_.fail(message("tensor ", place.name, ": ", place.bytes, " bytes, expected ", tensor.bytes));
    advance(place);
    tensor.offset = place.offset;
    tensor.crc32 = place.crc32;
    if (!tensors.emplace(place.name, tensor).second) json_.fail(message("tensor ", place.name, " occurs twice"));
  }

  void section() {
    Section section{};
    json_.fields(place_fields(&section));
    advance(section);
    sections.push_back(section);
  }

  JsonReader::Fields place_fields(Section* place) {
    return {{"name", [this, place] { place->name = json_.string(); }},
            {"offset", [this, place] { place->offset = json_.integer(); }},
            {"nbytes", [this, place] { place->bytes = json_.integer(); }},
            {"crc32", [this, place] { place->crc32 = static_cast<uint32_t>(json_.integer()); }}};
  }

  // One after the other without a gap, and before the header.
  void advance(const Section& place) {
    if (place.offset != position_) json_.fail(message(place.name, ": offset ", place.offset, ", expected ", position_));
    if (position_ > end_ || place.bytes > end_ - position_) json_.fail(message(place.name, " reaches into the header"));
    position_ = aligned(position_ + place.bytes);
  }

  JsonReader json_;
  size_t end_, position_ = kPreludeBytes;
};

}  // namespace

IattFile::IattFile(const std::string& path) : path_(path), content_(map_file(path)) {
  const std::string_view text = header();
  try {
    read(text);
  } catch (const ModelFileError& error) {
    fail(message("the header: ", error.what()));
  }
}

void IattFile::fail(const std::string& problem) const { throw ModelFileError(message(path_, ": ", problem)); }

std::string_view IattFile::header() const {
  const uint8_t* data = content_.data();
  const size_t size = content_.size();
  if (size < kPreludeBytes) fail(message("the file has ", size, " bytes, at least ", kPreludeBytes, " are needed"));
  if (std::memcmp(data, kMagic, 8) != 0) fail("not an .iatt file");
  const uint32_t version = load<uint32_t>(data + 8);
  if (version == 0 || version > kNewestVersion)
    throw UnsupportedModel(message(path_, ": .iatt version ", version, ", this version reads 1 to ", kNewestVersion));
  bool zeros = true;
  for (size_t i = 32; i < 60; ++i) zeros = zeros && data[i] == 0;
  if (!zeros || crc32(data, 60) != load<uint32_t>(data + 60)) fail("the first 64 bytes are damaged (checksum)");
  const uint64_t offset = load<uint64_t>(data + 16), bytes = load<uint64_t>(data + 24);
  if (bytes > kMaxHeaderBytes) fail(message("the header has ", bytes, " bytes, at most ", kMaxHeaderBytes));
  if (offset < kPreludeBytes || offset > size || bytes != size - offset)
    fail(message("the header lies at ", offset, " and has ", bytes, " bytes, the file ", size, " (truncated?)"));
  if (crc32(data + offset, bytes) != load<uint32_t>(data + 12)) fail("the header is damaged (checksum)");
  return {reinterpret_cast<const char*>(data) + offset, bytes};
}

void IattFile::read(std::string_view header) {
  HeaderReader reader(header, content_.size() - header.size());
  reader.read();
  if (reader.layout != kWeightLayout)
    throw UnsupportedModel(message(path_, ": the weights are packed as '", reader.layout.substr(0, 40),
                                   "', this version reads '", kWeightLayout, "'; pack the original model again"));
  tensors_ = std::move(reader.tensors);
  texts_ = std::move(reader.texts);
  for (const Section& section : reader.sections) {
    const uint8_t* data = content_.data() + section.offset;
    if (crc32(data, section.bytes) != section.crc32)
      throw ModelFileError(message("section ", section.name, " is damaged (checksum)"));
    texts_[section.name] = std::string(reinterpret_cast<const char*>(data), section.bytes);
  }
}

const std::string* IattFile::text(const std::string& name) const {
  const auto found = texts_.find(name);
  return found == texts_.end() ? nullptr : &found->second;
}

const IattFile::Tensor& IattFile::tensor(const std::string& name, size_t dimensions) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail(message("tensor ", name, " is missing"));
  if (found->second.shape.size() != dimensions)
    fail(message("tensor ", name, " has ", found->second.shape.size(), " dimensions, expected ", dimensions));
  return found->second;
}

SharedBytes IattFile::bytes(const Tensor& tensor) const {
  return {content_.data() + tensor.offset, tensor.bytes, std::make_shared<SharedBytes>(content_)};
}

std::shared_ptr<const PackedWeights> IattFile::matrix(const std::string& name) const {
  const Tensor& t = tensor(name, 2);
  return std::make_shared<PackedWeights>(
      borrow_packed_weights(weight_format_from_name(t.format.c_str()), t.shape[0], t.shape[1], bytes(t)));
}

std::vector<float> IattFile::vector(const std::string& name) const {
  const Tensor& t = tensor(name, 1);
  std::vector<float> values(t.shape[0]);
  std::memcpy(values.data(), content_.data() + t.offset, t.bytes);
  for (const float value : values)
    if (!std::isfinite(value)) fail(message("tensor ", name, " holds NaN or Inf"));
  return values;
}

void IattFile::verify(const Progress& progress) const {
  constexpr size_t kPiece = size_t{1} << 22;
  uint64_t total = 0, done = 0;
  for (const auto& entry : tensors_) total += entry.second.bytes;
  for (const auto& [name, tensor] : tensors_) {
    uint32_t crc = 0;
    for (size_t start = 0; start < tensor.bytes; start += kPiece) {
      const size_t count = std::min(kPiece, tensor.bytes - start);
      crc = crc32(content_.data() + tensor.offset + start, count, crc);
      done += count;
      if (progress) progress(done, total);
    }
    if (crc != tensor.crc32) fail(message("tensor ", name, " is damaged (checksum)"));
  }
}

}  // namespace intattention
