// A whole small decoder: the logits of the CPU, bit for bit, however the ids are fed.
#include "device_decoder.h"

#include <algorithm>

#include "cuda_test.h"
#include "dispatch.h"
#include "random_decoder.h"

namespace intattention::cuda {
namespace {

class DecoderCuda : public CudaTest {
 protected:
  DecoderCuda() { model_.all_biases = false; }

  RandomDecoder model_;
};

TEST_F(DecoderCuda, SameBitsAsTheCpuForAnyChunks) {
  const std::vector<int32_t> ids = model_.prompt(300);
  const std::unique_ptr<Decoder> cpu = model_.make(2);
  KVCache cache = model_.new_cache();
  const std::vector<uint32_t> expected = model_.all_logits(*cpu, cache, ids, ids.size());
  DeviceDecoder decoder(*cpu);
  for (bool graphs : {true, false})
    for (size_t chunk : {size_t{1}, size_t{2}, size_t{7}, size_t{8}, size_t{9}, size_t{64}, ids.size()}) {
      decoder.use_graphs(graphs);
      const auto own = decoder.new_cache(512);
      EXPECT_TRUE(model_.all_logits(decoder, *own, ids, chunk) == expected)
          << "chunk " << chunk << " graphs " << graphs;
      EXPECT_EQ(own->length(), ids.size());
    }
}

TEST_F(DecoderCuda, LastRowAndNone) {
  const std::vector<int32_t> ids = model_.prompt(40);
  const std::unique_ptr<Decoder> cpu = model_.make(1);
  DeviceDecoder decoder(*cpu);
  KVCache cache = model_.new_cache();
  const auto own = decoder.new_cache(512);
  const size_t vocab = model_.config.vocab_size;
  std::vector<float> expected(vocab), got(vocab);
  cpu->forward(ids.data(), 40, cache, LogitRows::kLast, expected.data());
  decoder.forward(ids.data(), 20, *own, LogitRows::kNone, nullptr);
  decoder.forward(&ids[20], 1, *own, LogitRows::kNone, nullptr);
  decoder.forward(&ids[21], 19, *own, LogitRows::kLast, got.data());
  expect_bits(got, expected);
}

TEST_F(DecoderCuda, GreedyOnTheDeviceEqualsTheHostsChoice) {
  const std::vector<int32_t> ids = model_.prompt(5);
  const std::unique_ptr<Decoder> cpu = model_.make(1);
  DeviceDecoder decoder(*cpu);
  KVCache cache = model_.new_cache();
  const size_t vocab = model_.config.vocab_size, steps = 280, limit = vocab - 5;
  std::vector<float> logits(vocab);
  cpu->forward(ids.data(), ids.size(), cache, LogitRows::kLast, logits.data());
  const auto best = [&] {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.begin() + limit) - logits.begin());
  };
  const int32_t first = best();
  std::vector<int32_t> expected, got(steps);
  for (int32_t token = first; expected.size() < steps;) {
    cpu->forward(&token, 1, cache, LogitRows::kLast, logits.data());
    expected.push_back(token = best());
  }
  for (bool graphs : {true, false}) {
    decoder.use_graphs(graphs);
    const auto own = decoder.new_cache(512);
    decoder.forward(ids.data(), ids.size(), *own, LogitRows::kNone, nullptr);
    decoder.greedy(first, steps, limit, *own, got.data());
    EXPECT_EQ(got, expected) << "graphs " << graphs;
    EXPECT_EQ(own->length(), ids.size() + steps);
  }
}

TEST_F(DecoderCuda, FailuresLeaveTheCacheAsItWas) {
  const std::unique_ptr<Decoder> cpu = model_.make(1);
  DeviceDecoder decoder(*cpu);
  const std::vector<int32_t> ids = model_.prompt(30);
  const auto cache = decoder.new_cache(40), fresh = decoder.new_cache(40);
  const size_t vocab = model_.config.vocab_size;
  std::vector<float> logits(vocab), again(vocab);
  decoder.forward(ids.data(), 20, *cache, LogitRows::kLast, logits.data());
  const int32_t bad = static_cast<int32_t>(vocab);
  EXPECT_THROW(decoder.forward(&bad, 1, *cache, LogitRows::kLast, logits.data()), InvalidArgument);
  EXPECT_THROW(decoder.forward(ids.data(), 0, *cache, LogitRows::kLast, logits.data()), InvalidArgument);
  EXPECT_THROW(decoder.forward(ids.data(), 21, *cache, LogitRows::kLast, logits.data()), ContextOverflow);
  EXPECT_THROW(decoder.greedy(0, 21, vocab, *cache, nullptr), ContextOverflow);
  EXPECT_THROW(cache->truncate(21), InvalidArgument);
  EXPECT_EQ(cache->length(), 20u);
  decoder.forward(&ids[20], 10, *cache, LogitRows::kLast, logits.data());
  cache->truncate(15);
  decoder.forward(&ids[15], 15, *cache, LogitRows::kLast, logits.data());
  decoder.forward(ids.data(), 30, *fresh, LogitRows::kLast, again.data());
  expect_bits(logits, again);
}

TEST_F(DecoderCuda, AThousandReplaysTakeNoMemory) {
  const std::unique_ptr<Decoder> cpu = model_.make(1);
  DeviceDecoder decoder(*cpu);
  const auto cache = decoder.new_cache(512);
  std::vector<int32_t> ids(200);
  const auto free_bytes = [] { return device_facts().free_bytes; };
  decoder.greedy(1, 200, 96, *cache, ids.data());
  const size_t before = free_bytes();
  for (int i = 0; i < 5; ++i) {
    cache->truncate(0);
    decoder.greedy(1, 200, 96, *cache, ids.data());
  }
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(DecoderCuda, BiasesThatAreNotBuiltAreRefused) {
  RandomDecoder all;
  EXPECT_THROW(DeviceDecoder(*all.make(1)), InvalidArgument);
}

TEST_F(DecoderCuda, AFailedLaunchIsNoticed) {
  RandomDecoder big;
  const auto weights = big.weights(WeightFormat::kW4G32, 32, 1 << 20);  // activations exceed any shared memory
  const DeviceWeights w({weights}, false);
  const RowsOnDevice rows(size_t{1} << 20);
  const DeviceBuffer y(32 * sizeof(float));
  const GemvScratch scratch;
  EXPECT_THROW(gemv_wxa8(w.view(), 1, rows.rows(), y.as<float>(), 32, scratch, nullptr), CudaError);
}

}  // namespace
}  // namespace intattention::cuda
