// A small random decoder gives the same bits on every ISA, for any number of threads and any chunking.
#include "decoder.h"

#include <algorithm>
#include <limits>

#include "error.h"
#include "kernel_test.h"
#include "random_decoder.h"

namespace intattention::testing {
namespace {

class DecoderTest : public KernelTest {
 protected:
  void TearDown() override { use_isa(runnable_tables().front()->name); }

  std::vector<uint32_t> all_logits(Decoder& decoder, const std::vector<int32_t>& ids, size_t chunk) const {
    KVCache cache = model.new_cache();
    return model.all_logits(decoder, cache, ids, chunk);
  }
  std::unique_ptr<Decoder> make(int threads) { return model.make(threads); }
  std::vector<int32_t> prompt(size_t count) { return model.prompt(count); }

  RandomDecoder model;
  const DecoderConfig& config = model.config;
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
  KVCache cache = model.new_cache();
  std::vector<float> last(config.vocab_size);
  decoder->forward(ids.data(), ids.size(), cache, LogitRows::kLast, last.data());
  for (size_t i = 0; i < last.size(); ++i) ASSERT_EQ(bits_of(last[i]), all[(ids.size() - 1) * config.vocab_size + i]);
}

TEST_P(DecoderTest, FailuresLeaveTheCacheAsItWas) {
  use_isa(table().name);
  const std::unique_ptr<Decoder> decoder = make(2);
  const std::vector<int32_t> ids = prompt(30);
  KVCache cache = model.new_cache(40);
  std::vector<float> logits(config.vocab_size), again(config.vocab_size);
  decoder->forward(ids.data(), 20, cache, LogitRows::kLast, logits.data());
  const int32_t bad = static_cast<int32_t>(config.vocab_size);
  EXPECT_THROW(decoder->forward(&bad, 1, cache, LogitRows::kLast, logits.data()), InvalidArgument);
  EXPECT_THROW(decoder->forward(ids.data(), 0, cache, LogitRows::kLast, logits.data()), InvalidArgument);
  EXPECT_THROW(decoder->forward(ids.data(), 21, cache, LogitRows::kLast, logits.data()), ContextOverflow);
  EXPECT_EQ(cache.length(), 20u);
  decoder->forward(&ids[20], 10, cache, LogitRows::kLast, logits.data());
  KVCache fresh = model.new_cache(40);
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
      std::vector<float> logits(rows * config.vocab_size);
      KVCache cache = model.new_cache();
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
      std::vector<float> next(config.vocab_size), next_expected(config.vocab_size);
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
  KVCache wide = model.new_cache(), narrow = model.new_cache(25);
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
