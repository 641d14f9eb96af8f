// A packed model file of two small layers with random weights, written without the package's own writer: the frame as
// intattention/iatt_header.py draws it.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "crc32.h"
#include "packing.h"

namespace intattention::testing {

class SmallIatt {
 public:
  static constexpr size_t kVocab = 96, kHidden = 64, kInter = 96, kHeads = 4, kKvHeads = 2, kHeadDim = 32,
                          kContext = 512;
  using Edit = std::function<std::string(std::string)>;

  // `header` and `description` change the JSON before checksums are taken.
  explicit SmallIatt(const Edit& header = nullptr, const Edit& description = nullptr) : bytes_(64, 0) {
    std::string tensors;
    const auto add = [&](const std::string& name, const std::string& format, const std::string& shape, const void* data,
                         size_t size) {
      const auto* begin = static_cast<const uint8_t*>(data);
      tensors += (tensors.empty() ? "" : ",") + std::string("{\"name\":\"") + name + "\",\"format\":\"" + format +
                 "\",\"shape\":[" + shape + "],\"rotary_heads\":0,\"offset\":" + std::to_string(bytes_.size()) +
                 ",\"nbytes\":" + std::to_string(size) + ",\"crc32\":" + std::to_string(crc32(begin, size)) + "}";
      bytes_.insert(bytes_.end(), begin, begin + size);
      bytes_.resize((bytes_.size() + 63) / 64 * 64);
    };
    const auto matrix = [&](const std::string& name, size_t n, size_t k) {
      const PackedWeights w = random_weights(n, k);
      add(name, "w4g32a", std::to_string(n) + "," + std::to_string(k), w.data.data(), w.data.size());
      return quoted(name);
    };
    const auto ones = [&](const std::string& name) {
      const std::vector<float> w(kHidden, 1.0f);
      add(name, "f32", std::to_string(kHidden), w.data(), w.size() * sizeof(float));
      return quoted(name);
    };
    const size_t q = kHeads * kHeadDim, kv = kKvHeads * kHeadDim;
    std::string text = R"({"vocab_size":96,"hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,)"
                       R"("num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,)"
                       R"("max_position_embeddings":512,"rms_norm_eps":1e-5,"rope_theta":10000.0,)"
                       R"("rope_attention_factor":1.0,"context":512,"rotations":[{"context":512,)"
                       R"("inverse_frequency":[1,0.5,0.25,0.125,0.1,0.05,0.025,0.0125]}],"token_count":90,)"
                       R"("end_ids":[1,2],"unknown":{"skipped":[true,null]},"lm_head":null,"embed_tokens":)";
    text += matrix("embed", kVocab, kHidden) + ",\"norm\":" + ones("norm") + ",\"layers\":[";
    for (const std::string layer : {"a.", "b."}) {
      text += (layer == "a." ? "{" : ",{") + std::string("\"input_layernorm\":") + ones(layer + "in");
      text += ",\"qkv_proj\":[" + matrix(layer + "q", q, kHidden) + "," + matrix(layer + "k", kv, kHidden) + "," +
              matrix(layer + "v", kv, kHidden) + "],\"o_proj\":" + matrix(layer + "o", kHidden, q);
      text += ",\"post_attention_layernorm\":" + ones(layer + "post") + ",\"gate_up_proj\":[" +
              matrix(layer + "gate", kInter, kHidden) + "," + matrix(layer + "up", kInter, kHidden) + "]";
      text += ",\"down_proj\":" + matrix(layer + "down", kHidden, kInter) +
              R"(,"qkv_bias":[],"o_bias":[],"gate_up_bias":[],"down_bias":[],"q_norm":null,"k_norm":null)"
              R"(,"sliding_window":0,"qk_scale":[],"k_center":[]})";
    }
    text += "]}";
    if (description) text = description(text);
    const std::string section = "{{ messages }}";
    const size_t section_offset = bytes_.size();
    bytes_.insert(bytes_.end(), section.begin(), section.end());
    bytes_.resize((bytes_.size() + 63) / 64 * 64);
    std::string json =
        "{\"layout\":\"r8k4p\",\"metadata\":{\"n\":[1.5,-2e3],\"intattention.decoder.json\":" + quoted(text) +
        ",\"tokenizer.json\":\"\\u00e9\\ud83d\\ude00\"},\"tensors\":[" + tensors +
        "],\"sections\":[{\"name\":\"chat_template.jinja\",\"offset\":" + std::to_string(section_offset) +
        ",\"nbytes\":" + std::to_string(section.size()) +
        ",\"crc32\":" + std::to_string(crc32(bytes_.data() + section_offset, section.size())) + "}]}";
    finish(header ? header(json) : json);
  }

  std::string& content() { return content_; }

  // Writes the file and returns its path, which lives as long as this object.
  std::string path() {
    if (path_.empty()) {
      char name[] = "/tmp/intattention_test_XXXXXX";
      const int fd = mkstemp(name);
      if (fd >= 0) close(fd);
      path_ = name;
    }
    std::FILE* file = std::fopen(path_.c_str(), "wb");
    std::fwrite(content_.data(), 1, content_.size(), file);
    std::fclose(file);
    return path_;
  }
  ~SmallIatt() {
    if (!path_.empty()) std::remove(path_.c_str());
  }
  SmallIatt(const SmallIatt&) = delete;
  SmallIatt& operator=(const SmallIatt&) = delete;

 private:
  static std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) out += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    return out + "\"";
  }

  PackedWeights random_weights(size_t n, size_t k) {
    std::vector<uint8_t> q(n * k / 2);
    for (uint8_t& byte : q) byte = static_cast<uint8_t>(rng_());
    const std::vector<uint16_t> scale(n * k / kGroup, 0x2000), min(n * k / kGroup, 0xac00);  // 2^-7, -2^-4
    return pack_weights({WeightFormat::kW4G32A, n, k, q.data(), scale.data(), min.data()});
  }

  template <typename T>
  void put(size_t at, T value) {
    std::memcpy(&bytes_[at], &value, sizeof value);
  }

  void finish(const std::string& json) {
    const auto* text = reinterpret_cast<const uint8_t*>(json.data());
    std::memcpy(bytes_.data(), "IATT\r\n\x1a\n", 8);
    put<uint32_t>(8, 2);
    put<uint32_t>(12, crc32(text, json.size()));
    put<uint64_t>(16, bytes_.size());
    put<uint64_t>(24, json.size());
    put<uint32_t>(60, crc32(bytes_.data(), 60));
    content_ = std::string(bytes_.begin(), bytes_.end()) + json;
  }

  std::mt19937 rng_{5};
  std::vector<uint8_t> bytes_;
  std::string content_, path_;
};

}  // namespace intattention::testing
