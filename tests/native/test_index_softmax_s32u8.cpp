// index_softmax_s32u8 of every table: probabilities, sum and maximum exact against the page's formula.
#include "guarded_buffer.h"
#include "kernel_test.h"
#include "reference.h"

namespace intattention::testing {
namespace {

class IndexSoftmaxTest : public KernelTest {
 protected:
  void check(const SoftmaxInput& in) {
    const size_t n = in.logits.size();
    SCOPED_TRACE(::testing::Message() << "n " << n << " visible [" << in.begin << ", " << in.end << ") narrow "
                                      << in.narrow << " lshift " << in.lshift << " factor " << in.factor << " max "
                                      << in.max);
    GuardedBuffer<int32_t> logits(in.logits);
    GuardedBuffer<int16_t> key_ratio(in.key_ratio), log_scale(in.log_scale), scratch(n);
    GuardedBuffer<uint8_t> weight_low(in.weight_low), weight_high(in.weight_high), probs(n);
    const IndexSoftmaxKeys keys{key_ratio.data(), log_scale.data(), weight_low.data(), weight_high.data()};
    IndexSoftmaxRow row{in.begin, in.end, in.narrow, in.lshift, static_cast<int16_t>(in.factor), in.max, 12345u};
    table().index_softmax_s32u8(n, logits.data(), &keys, &row, scratch.data(), probs.data());
    const SoftmaxOutput expected = index_softmax_reference(in);
    ASSERT_EQ(row.max, expected.max);
    ASSERT_EQ(row.sum, expected.sum);
    for (size_t j = 0; j < n; ++j) ASSERT_EQ(int{probs[j]}, int{expected.probs[j]}) << "key " << j;
    EXPECT_TRUE(probs.intact() && scratch.intact());
  }

  SoftmaxInput random_input(size_t n, int32_t logit_range) {
    SoftmaxInput in;
    in.logits = random_ints<int32_t>(n, -logit_range, logit_range);
    in.key_ratio = random_ints<int16_t>(n, 0, 32767);
    in.log_scale = random_ints<int16_t>(n, -600, 0);
    in.weight_low = random_ints<uint8_t>(n, 0, 255);
    in.weight_high = random_ints<uint8_t>(n, 0, 127);
    in.end = static_cast<uint32_t>(n);
    in.narrow = 5;
    in.factor = random_int(16384, 32767);
    in.max = kNoMax;
    return in;
  }
};

TEST_P(IndexSoftmaxTest, LookUpTable) {
  for (int i = 0; i < 64; ++i) EXPECT_EQ(int{kIndexSoftmaxLut[i]}, lut_reference(i)) << i;
}

TEST_P(IndexSoftmaxTest, NarrowAndShift) {
  for (int narrow = 0; narrow <= 15; ++narrow)
    for (int lshift = 0; lshift <= 15; ++lshift)
      for (int32_t range : {300, 40000, 127 * 127 * 64, 2147483647}) {
        SoftmaxInput in = random_input(32, range);
        in.narrow = narrow;
        in.lshift = lshift;
        check(in);
        if (HasFatalFailure()) return;
      }
}

TEST_P(IndexSoftmaxTest, SmallFactors) {
  for (int factor : {0, 1, 2, 100, 1024, 8192, 32767}) {
    SoftmaxInput in = random_input(256, 1000000);
    in.factor = factor;
    check(in);
  }
}

TEST_P(IndexSoftmaxTest, VisibleRanges) {
  const std::vector<uint32_t> edges = {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 127, 240, 241, 255, 256};
  for (uint32_t begin : edges)
    for (uint32_t end : edges) {
      if (begin > end) continue;
      SoftmaxInput in = random_input(256, 20000);
      in.begin = begin;
      in.end = end;
      check(in);
      in.logits.assign(256, -2147483647 - 1);  // hidden keys must not look like visible ones
      check(in);
      if (HasFatalFailure()) return;
    }
}

TEST_P(IndexSoftmaxTest, ShortBuffers) {
  for (size_t n = 16; n <= 256; n += 16) {
    SoftmaxInput in = random_input(n, 20000);
    check(in);
    in.end = static_cast<uint32_t>(n - 3);
    check(in);
  }
}

TEST_P(IndexSoftmaxTest, EmptyRange) {
  for (int32_t max : {kNoMax, -5, 20000}) {
    SoftmaxInput in = random_input(64, 20000);
    in.begin = in.end = 20;
    in.max = max;
    check(in);
  }
}

// 256 equal keys of the largest weight: the largest sum there is.
TEST_P(IndexSoftmaxTest, FlatRows) {
  for (int32_t logit : {0, 1000, -1000, 127 * 127 * 64, -127 * 127 * 64}) {
    SoftmaxInput in = random_input(256, 1);
    in.logits.assign(256, logit);
    in.key_ratio.assign(256, 32767);
    in.log_scale.assign(256, -77);
    in.weight_low.assign(256, 255);
    in.weight_high.assign(256, 127);
    check(in);
    EXPECT_EQ(index_softmax_reference(in).sum, 2139029760u);
  }
}

TEST_P(IndexSoftmaxTest, RunningMaximum) {
  for (int32_t max : {kNoMax, -32768, -1000, 0, 900, 1500, 20000, 32767}) {
    for (int32_t range : {200, 30000, 3000000}) {
      SoftmaxInput in = random_input(128, range);
      in.lshift = 1;
      in.max = max;
      check(in);
    }
  }
}

TEST_P(IndexSoftmaxTest, ExtremeLogits) {
  for (int narrow : {0, 1, 5, 6, 15}) {
    SoftmaxInput in = random_input(64, 1);
    for (int32_t& logit : in.logits) logit = random_int(0, 1) == 1 ? 2147483647 : -2147483647 - 1;
    in.narrow = narrow;
    in.key_ratio.assign(64, 32767);
    for (int lshift : {0, 6, 15}) {
      in.lshift = lshift;
      check(in);
    }
  }
}

TEST_P(IndexSoftmaxTest, EveryDistanceAndWeight) {
  SoftmaxInput in = random_input(256, 1);
  in.narrow = 0;
  in.factor = 32767;
  in.key_ratio.assign(256, 32767);
  for (int start = 0; start < 1280; start += 255) {
    for (int j = 0; j < 256; ++j) {
      in.logits[j] = j == 0 ? 600 : 600 - start - j;
      in.log_scale[j] = 0;
      in.weight_low[j] = static_cast<uint8_t>(j);
      in.weight_high[j] = static_cast<uint8_t>(j / 2);
    }
    check(in);
  }
}

// Log scales of the whole range, and blocks just above and below the limit of what is dropped.
TEST_P(IndexSoftmaxTest, LogScales) {
  for (int lshift : {0, 1, 9}) {
    SoftmaxInput in = random_input(256, 30000);
    in.log_scale = random_ints<int16_t>(256, -16384, 16383);
    in.lshift = lshift;
    in.begin = 3;
    in.end = 250;
    const int32_t own = index_softmax_reference(in).max;
    for (int32_t above : {-3000, 0, kDropCounts, kDropCounts + 1, 9000}) {
      in.max = own + above;
      check(in);
      EXPECT_EQ(index_softmax_reference(in).sum == 0, above > kDropCounts);
    }
  }
}

// The lowest maximum there can be: a hidden key may not pass for a visible one.
TEST_P(IndexSoftmaxTest, LowestMaximum) {
  for (uint32_t begin : {0, 1, 15, 17, 40})
    for (uint32_t end : {41, 47, 48, 63, 64}) {
      SoftmaxInput in = random_input(64, 1);
      in.logits.assign(64, -2147483647 - 1);
      in.key_ratio.assign(64, 32767);
      in.log_scale.assign(64, -16384);
      in.narrow = 0;
      in.lshift = 15;
      in.factor = 32767;
      in.begin = begin;
      in.end = end;
      check(in);
    }
}

INTATTENTION_ON_EVERY_TABLE(IndexSoftmaxTest);

}  // namespace
}  // namespace intattention::testing
