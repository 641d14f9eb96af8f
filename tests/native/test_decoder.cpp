// A small random decoder gives the same bits on every ISA, for any number of threads and any chunking.
#include "decoder.h"

#include <algorithm>
#include <limits>

#include "error.h"
#include "kernel_test.h"

namespace intattention::testing {
namespace {

// Half of a head rotates; layer 1 has a bias, norms, a scale and a centre of q and k, and a window.
const DecoderConfig kConfig{96, 64, 96, 2, 4, 2, 32, 512, 1e-5f, 10000.0, {plain_frequencies(10000.0, 16), 1.1}};

class DecoderTest : public KernelTest {
 protected:
  void TearDown() override { use_isa(runnable_tables().front()->name); }

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
    const size_t h = kConfig.hidden_size, inter = kConfig.intermediate_size;
    const size_t q = kConfig.num_attention_heads * kConfig.head_dim,
                 kv = kConfig.num_key_value_heads * kConfig.head_dim;
    using F = WeightFormat;
    std::vector<std::shared_ptr<const DecoderLayer>> layers;
    for (size_t i = 0; i < kConfig.num_hidden_layers; ++i) {
      DecoderLayer layer{random_floats(h, 0.5f, 1.5f),
                         LinearW4A8({weights(F::kW4G32, q, h), weights(F::kW4G32A, kv, h), weights(F::kW8G32, kv, h)}),
                         LinearW4A8({weights(F::kW4G32A, h, q)}),
                         random_floats(h, 0.5f, 1.5f),
                         LinearW4A8({weights(F::kW4G32A, inter, h), weights(F::kW4G32, inter, h)}),
                         LinearW4A8({weights(F::kW4G32A, h, inter)})};
      if (i == 1) {
        layer.qkv_bias = random_floats(q + 2 * kv, -1.0f, 1.0f);
        layer.o_bias = random_floats(h, -1.0f, 1.0f);
        layer.gate_up_bias = random_floats(2 * inter, -1.0f, 1.0f);
        layer.down_bias = random_floats(h, -1.0f, 1.0f);
        layer.q_norm = random_floats(kConfig.head_dim, 0.5f, 1.5f);
        layer.k_norm = random_floats(kConfig.head_dim, 0.5f, 1.5f);
        layer.sliding_window = 70;
        layer.qk_scale.assign(kv, 2.0f);
        layer.k_center = random_floats(kv, -1.0f, 1.0f);
      }
      layers.push_back(std::make_shared<DecoderLayer>(std::move(layer)));
    }
    return std::make_unique<Decoder>(kConfig, weights(F::kW8G32, kConfig.vocab_size, h), layers,
                                     random_floats(h, 0.5f, 1.5f), nullptr,
                                     std::make_shared<ThreadPool>(threads, std::vector<int>{}));
  }

  KVCache new_cache(size_t max_len = 512) const {
    return KVCache(kConfig.num_hidden_layers, kConfig.num_key_value_heads, kConfig.head_dim, max_len);
  }

  std::vector<int32_t> prompt(size_t count) {
    rng.seed(11);
    return random_ints<int32_t>(count, 0, static_cast<int>(kConfig.vocab_size) - 1);
  }

  std::vector<uint32_t> all_logits(Decoder& decoder, const std::vector<int32_t>& ids, size_t chunk) const {
    KVCache cache = new_cache();
    std::vector<float> logits(ids.size() * kConfig.vocab_size);
    for (size_t t = 0; t < ids.size(); t += chunk)
      decoder.forward(&ids[t], std::min(chunk, ids.size() - t), cache, LogitRows::kAll,
                      &logits[t * kConfig.vocab_size]);
    std::vector<uint32_t> bits;
    for (float value : logits) bits.push_back(bits_of(value));
    return bits;
  }
};

TEST_P(DecoderTest, SameBitsAsPortableForAnyThreadsAndChunks) {
  const std::vector<int32_t> ids = prompt(300);  // crosses a key block and a batch
  use_isa("portable");
  const std::vector<uint32_t> expected = all_logits(*make(1), ids, ids.size());
  use_isa(table().name);
  for (int threads : {1, 2, 3}) {
    const std::unique_ptr<Decoder> decoder = make(threads);
    for (size_t chunk : {size_t{1}, size_t{7}, size_t{64}, size_t{100}, ids.size()})
      EXPECT_TRUE(all_logits(*decoder, ids, chunk) == expected) << "threads " << threads << " chunk " << chunk;
  }
}

TEST_P(DecoderTest, LastEqualsTheLastOfAll) {
  use_isa(table().name);
  const std::unique_ptr<Decoder> decoder = make(2);
  const std::vector<int32_t> ids = prompt(20);
  const std::vector<uint32_t> all = all_logits(*decoder, ids, ids.size());
  KVCache cache = new_cache();
  std::vector<float> last(kConfig.vocab_size);
  decoder->forward(ids.data(), ids.size(), cache, LogitRows::kLast, last.data());
  for (size_t i = 0; i < last.size(); ++i) ASSERT_EQ(bits_of(last[i]), all[(ids.size() - 1) * kConfig.vocab_size + i]);
}

TEST_P(DecoderTest, FailuresLeaveTheCacheAsItWas) {
  use_isa(table().name);
  const std::unique_ptr<Decoder> decoder = make(2);
  const std::vector<int32_t> ids = prompt(30);
  KVCache cache = new_cache(40);
  std::vector<float> logits(kConfig.vocab_size), again(kConfig.vocab_size);
  decoder->forward(ids.data(), 20, cache, LogitRows::kLast, logits.data());
  const int32_t bad = static_cast<int32_t>(kConfig.vocab_size);
  EXPECT_THROW(decoder->forward(&bad, 1, cache, LogitRows::kLast, logits.data()), InvalidArgument);
  EXPECT_THROW(decoder->forward(ids.data(), 0, cache, LogitRows::kLast, logits.data()), InvalidArgument);
  EXPECT_THROW(decoder->forward(ids.data(), 21, cache, LogitRows::kLast, logits.data()), ContextOverflow);
  EXPECT_EQ(cache.length(), 20u);
  decoder->forward(&ids[20], 10, cache, LogitRows::kLast, logits.data());
  KVCache fresh = new_cache(40);
  decoder->forward(ids.data(), 30, fresh, LogitRows::kLast, again.data());
  EXPECT_EQ(0, std::memcmp(logits.data(), again.data(), logits.size() * sizeof(float)));
}

// Prompts, parts of prompts and single tokens of five sequences side by side, in more rows than a pass takes.
TEST_P(DecoderTest, BatchesHaveTheBitsOfSingleRuns) {
  use_isa(table().name);
  const std::vector<int32_t> ids = prompt(320);
  struct Part {
    size_t before, count;  // tokens in the cache, and in the batch
    LogitRows rows;
  };
  const std::vector<Part> parts{{40, 1, LogitRows::kLast},
                                {0, 20, LogitRows::kAll},
                                {250, 1, LogitRows::kLast},
                                {3, 30, LogitRows::kNone},
                                {5, 300, LogitRows::kLast}};
  for (int threads : {1, 3}) {
    const std::unique_ptr<Decoder> decoder = make(threads);
    std::vector<float> expected;
    std::vector<KVCache> single, batch;
    for (const Part& part : parts) {
      const size_t rows = part.rows == LogitRows::kAll ? part.count : part.rows == LogitRows::kLast ? 1 : 0;
      std::vector<float> logits(rows * kConfig.vocab_size);
      KVCache cache = new_cache();
      if (part.before > 0) decoder->forward(ids.data(), part.before, cache, LogitRows::kNone, nullptr);
      batch.push_back(cache.fork());
      decoder->forward(&ids[part.before], part.count, cache, part.rows, logits.data());
      single.push_back(std::move(cache));
      expected.insert(expected.end(), logits.begin(), logits.end());
    }
    std::vector<DecoderInput> inputs;
    for (size_t i = 0; i < parts.size(); ++i)
      inputs.push_back({&ids[parts[i].before], parts[i].count, &batch[i], parts[i].rows});
    std::vector<float> logits(expected.size());
    decoder->forward(inputs, logits.data());
    EXPECT_EQ(0, std::memcmp(logits.data(), expected.data(), expected.size() * sizeof(float))) << threads;

    // what went into the caches is the same, too
    for (size_t i = 0; i < parts.size(); ++i) {
      std::vector<float> next(kConfig.vocab_size), next_expected(kConfig.vocab_size);
      EXPECT_EQ(batch[i].length(), single[i].length());
      decoder->forward(ids.data(), 1, batch[i], LogitRows::kLast, next.data());
      decoder->forward(ids.data(), 1, single[i], LogitRows::kLast, next_expected.data());
      EXPECT_EQ(0, std::memcmp(next.data(), next_expected.data(), next.size() * sizeof(float))) << i;
    }
  }
}

TEST_P(DecoderTest, FailuresOfABatchLeaveAllCachesAsTheyWere) {
  use_isa(table().name);
  const std::unique_ptr<Decoder> decoder = make(2);
  const std::vector<int32_t> ids = prompt(30);
  KVCache wide = new_cache(), narrow = new_cache(25);
  decoder->forward(ids.data(), 20, wide, LogitRows::kNone, nullptr);
  decoder->forward(ids.data(), 20, narrow, LogitRows::kNone, nullptr);
  const DecoderInput fits{&ids[20], 5, &wide, LogitRows::kNone};
  const int32_t bad = -1;
  EXPECT_THROW(decoder->forward({fits, {&ids[20], 6, &narrow, LogitRows::kNone}}, nullptr), ContextOverflow);
  EXPECT_THROW(decoder->forward({fits, {&bad, 1, &narrow, LogitRows::kNone}}, nullptr), InvalidArgument);
  EXPECT_THROW(decoder->forward({fits, fits}, nullptr), InvalidArgument);
  EXPECT_THROW(decoder->forward(std::vector<DecoderInput>(), nullptr), InvalidArgument);
  EXPECT_EQ(wide.length(), 20u);
  EXPECT_EQ(narrow.length(), 20u);
}

INTATTENTION_ON_EVERY_TABLE(DecoderTest);

}  // namespace
}  // namespace intattention::testing
