// A small random decoder with every option: half of a head rotates; layer 1 has biases, norms, a scale and a centre of
// q and k, and a window; formats differ from part to part.
#pragma once

#include <memory>
#include <vector>

#include "decoder.h"
#include "kernel_test.h"

namespace intattention::testing {

struct RandomDecoder : Random {
  DecoderConfig config{96, 64, 96, 2, 4, 2, 32, 512, 1e-5f, 10000.0, {plain_frequencies(10000.0, 16), 1.1}};
  bool all_biases = true;  // false: those of q, k and v only

  std::shared_ptr<const PackedWeights> weights(WeightFormat format, size_t n, size_t k) {
    const std::vector<uint8_t> q = random_ints<uint8_t>(n * k, 0, 255);
    std::vector<uint16_t> scale, min;
    for (size_t i = 0; i < n * (k / kGroup); ++i) {
      scale.push_back(static_cast<uint16_t>(0x1800 + random_int(0, 0x3ff)));  // f16 in [2^-9, 2^-8)
      min.push_back(static_cast<uint16_t>(0xA400 + random_int(0, 0x3ff)));    // f16 in (-2^-5, -2^-6]
    }
    const LogicalWeights logical{
        format, n, k, q.data(), scale.data(), format == WeightFormat::kW4G32A ? min.data() : nullptr};
    return std::make_shared<PackedWeights>(pack_weights(logical));
  }

  std::unique_ptr<Decoder> make(int threads) {
    rng.seed(7);
    const size_t h = config.hidden_size, inter = config.intermediate_size;
    const size_t q = config.num_attention_heads * config.head_dim, kv = config.num_key_value_heads * config.head_dim;
    using F = WeightFormat;
    std::vector<std::shared_ptr<const DecoderLayer>> layers;
    for (size_t i = 0; i < config.num_hidden_layers; ++i) {
      DecoderLayer layer{random_floats(h, 0.5f, 1.5f),
                         LinearW4A8({weights(F::kW4G32, q, h), weights(F::kW4G32A, kv, h), weights(F::kW8G32, kv, h)}),
                         LinearW4A8({weights(F::kW4G32A, h, q)}),
                         random_floats(h, 0.5f, 1.5f),
                         LinearW4A8({weights(F::kW4G32A, inter, h), weights(F::kW4G32, inter, h)}),
                         LinearW4A8({weights(F::kW4G32A, h, inter)})};
      if (i == 1) {
        layer.gate_up_proj = LinearW4A8({weights(F::kW4G32A, inter, h), weights(F::kW4G32A, inter, h)});
        layer.qkv_bias = random_floats(q + 2 * kv, -1.0f, 1.0f);
        if (all_biases) {
          layer.o_bias = random_floats(h, -1.0f, 1.0f);
          layer.gate_up_bias = random_floats(2 * inter, -1.0f, 1.0f);
          layer.down_bias = random_floats(h, -1.0f, 1.0f);
        }
        layer.q_norm = random_floats(config.head_dim, 0.5f, 1.5f);
        layer.k_norm = random_floats(config.head_dim, 0.5f, 1.5f);
        layer.sliding_window = 70;
        layer.qk_scale.assign(kv, 2.0f);
        layer.k_center = random_floats(kv, -1.0f, 1.0f);
      }
      layers.push_back(std::make_shared<DecoderLayer>(std::move(layer)));
    }
    return std::make_unique<Decoder>(config, weights(F::kW8G32, config.vocab_size, h), layers,
                                     random_floats(h, 0.5f, 1.5f), nullptr,
                                     std::make_shared<ThreadPool>(threads, std::vector<int>{}));
  }

  std::vector<int32_t> prompt(size_t count) {
    rng.seed(11);
    return random_ints<int32_t>(count, 0, static_cast<int>(config.vocab_size) - 1);
  }

  KVCache new_cache(size_t max_len = 512) const {
    return KVCache(config.num_hidden_layers, config.num_key_value_heads, config.head_dim, max_len);
  }

  // Bits of the logits of all ids, fed `chunk` at a time.
  template <typename AnyDecoder, typename AnyCache>
  std::vector<uint32_t> all_logits(AnyDecoder& decoder, AnyCache& cache, const std::vector<int32_t>& ids,
                                   size_t chunk) const {
    std::vector<float> logits(ids.size() * config.vocab_size);
    for (size_t t = 0; t < ids.size(); t += chunk)
      decoder.forward(&ids[t], std::min(chunk, ids.size() - t), cache, LogitRows::kAll, &logits[t * config.vocab_size]);
    std::vector<uint32_t> bits;
    for (float value : logits) bits.push_back(bits_of(value));
    return bits;
  }
};

}  // namespace intattention::testing
