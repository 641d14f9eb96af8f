// Packed model files: the frame that intattention/iatt_header.py draws, checked to the byte; nothing is believed.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "packing.h"
#include "shared_bytes.h"

namespace intattention {

class IattFile {
 public:
  // A packed matrix, or a float32 vector ("f32").
  struct Tensor {
    std::string format;
    std::vector<size_t> shape;
    size_t offset, bytes;
    uint32_t crc32;
  };
  // Called with (done, total) bytes.
  using Progress = std::function<void(uint64_t done, uint64_t total)>;

  // Maps the file and reads its header. Throws FileError; ModelFileError if it is damaged; UnsupportedModel if its
  // version or weight layout is another one.
  explicit IattFile(const std::string& path);

  const std::string& path() const { return path_; }

  // A text that the file carries (tokenizer.json, chat template, decoder description): a section, or a string of the
  // metadata. Null if there is none. Lives as long as this object.
  const std::string* text(const std::string& name) const;

  // Borrows the mapped pages, which stay mapped as long as the result. Throws ModelFileError if there is no such
  // tensor of two (one) dimensions, or the vector holds NaN or Inf.
  std::shared_ptr<const PackedWeights> matrix(const std::string& name) const;
  std::vector<float> vector(const std::string& name) const;

  // Reads every tensor and compares its checksum; throws ModelFileError for the first that is damaged. `progress` may
  // throw to stop.
  void verify(const Progress& progress) const;

  // Throws ModelFileError with the path in front.
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  std::string_view header() const;  // its checksum compared
  void read(std::string_view header);
  const Tensor& tensor(const std::string& name, size_t dimensions) const;
  SharedBytes bytes(const Tensor& tensor) const;

  std::string path_;
  SharedBytes content_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> texts_;
};

}  // namespace intattention
