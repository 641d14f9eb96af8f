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

INTATTENTION_ON_EVERY_TABLE(DecoderTest);

}  // namespace
}  // namespace intattention::testing
