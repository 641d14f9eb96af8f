// Models of known shapes with random weights: speed does not ask what they say. All layers share one set on the host
// and are separate on the device.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "decoder.h"

namespace intattention::bench {

struct Shape {
  const char* name;
  DecoderConfig config;
  bool bias;
};

inline const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{
      {"0.5b", {151936, 896, 4864, 24, 14, 2, 64, 32768, 1e-6f, 1e6}, true},
      {"1.5b", {151936, 1536, 8960, 28, 12, 2, 128, 131072, 1e-6f, 1e6}, true},
      {"7b", {152064, 3584, 18944, 28, 28, 4, 128, 131072, 1e-6f, 1e6}, true},
      {"14b", {152064, 5120, 13824, 48, 40, 8, 128, 131072, 1e-6f, 1e6}, true},
  };
  return all;
}

// Scales around 2^-10, so that activations stay in range.
inline std::shared_ptr<const PackedWeights> random_weights(WeightFormat format, size_t n, size_t k) {
  const size_t bytes = packed_weights_bytes(format, n, k), group = packed_group_bytes(format);
  AlignedBuffer buffer(bytes);
  std::mt19937_64 rng(n * 31 + k);
  uint64_t* words = buffer.as<uint64_t>();
  uint64_t state = rng();
  for (size_t i = 0; i < bytes / 8; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    words[i] = state;
  }
  uint16_t* half = buffer.as<uint16_t>();
  for (size_t at = 0; at < bytes; at += group)
    for (size_t r = 0; r < kTileRows; ++r) {
      uint16_t& d = half[at / 2 + r];
      d = static_cast<uint16_t>(0x1400 | (d & 0x3ff));
    }
  return std::make_shared<PackedWeights>(PackedWeights{format, 4, n, k, SharedBytes(std::move(buffer))});
}

// w4g32 throughout; embedding and lm_head one w8g32 matrix.
inline std::unique_ptr<Decoder> synthetic_decoder(const Shape& shape) {
  const DecoderConfig& c = shape.config;
  const size_t h = c.hidden_size, q = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim;
  constexpr WeightFormat f = WeightFormat::kW4G32;
  DecoderLayer layer{std::vector<float>(h, 1.0f),
                     LinearW4A8({random_weights(f, q, h), random_weights(f, kv, h), random_weights(f, kv, h)}),
                     LinearW4A8({random_weights(f, h, q)}),
                     std::vector<float>(h, 1.0f),
                     LinearW4A8({random_weights(f, c.intermediate_size, h), random_weights(f, c.intermediate_size, h)}),
                     LinearW4A8({random_weights(f, h, c.intermediate_size)})};
  if (shape.bias) layer.qkv_bias.assign(q + 2 * kv, 0.1f);
  const auto shared = std::make_shared<const DecoderLayer>(std::move(layer));
  return std::make_unique<Decoder>(c, random_weights(WeightFormat::kW8G32, c.vocab_size, h),
                                   std::vector<std::shared_ptr<const DecoderLayer>>(c.num_hidden_layers, shared),
                                   std::vector<float>(h, 1.0f), nullptr,
                                   std::make_shared<ThreadPool>(1, std::vector<int>{}));
}

}  // namespace intattention::bench
