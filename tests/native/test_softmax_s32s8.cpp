// softmax_s32s8 of every table: P, sum and maximum exact against the formula of docs/numerics.md section 8.
#include "exp_f32.h"
#include "guarded_buffer.h"
#include "kernel_test.h"

namespace intattention::testing {
namespace {

constexpr int32_t kLargestLogit = 128 * 128 * 1024;

class SoftmaxS32S8Test : public KernelTest {
 protected:
  void check(const std::vector<int32_t>& logits, size_t begin, size_t end, float factor, int32_t running) {
    const size_t n = logits.size();
    SCOPED_TRACE(::testing::Message() << "n " << n << " visible [" << begin << ", " << end << ") factor " << factor
                                      << " max " << running);
    GuardedBuffer<int32_t> input(logits);
    GuardedBuffer<int8_t> probs(n);
    FloatSoftmaxRow row{static_cast<uint32_t>(begin), static_cast<uint32_t>(end), factor, running, 12345};
    table().softmax_s32s8(n, input.data(), &row, probs.data());
    int32_t max = running, sum = 0;
    for (size_t j = begin; j < end; ++j) max = std::max(max, logits[j]);
    ASSERT_EQ(row.max, max);
    for (size_t j = 0; j < n; ++j) {
      int expected = 0;
      if (j >= begin && j < end)
        expected = static_cast<int>(
            std::nearbyint(exp_f32(static_cast<float>(logits[j] - max) * factor) * 127.0f));  // half to even
      sum += expected;
      ASSERT_EQ(int{probs[j]}, expected) << "key " << j;
    }
    EXPECT_EQ(row.sum, sum);
    EXPECT_TRUE(probs.intact());
  }
};

TEST_P(SoftmaxS32S8Test, Random) {
  for (size_t n : {16, 32, 48, 256})
    for (int32_t range : {10, 3000, 100000, kLargestLogit})
      for (float factor : {0.0f, 1e-38f, 1e-7f, 1e-4f, 1e-3f, 0.5f, 1e30f, 3.4e38f})
        for (int32_t running : {kNoMax, -range, range / 2})
          check(random_ints<int32_t>(n, -range, range), 0, n, factor, running);
}

TEST_P(SoftmaxS32S8Test, VisibleRanges) {
  const std::vector<size_t> edges = {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64};
  for (size_t begin : edges)
    for (size_t end : edges) {
      if (begin > end) continue;
      std::vector<int32_t> logits = random_ints<int32_t>(64, -20000, 20000);
      check(logits, begin, end, 2e-4f, -5);
      for (size_t j = 0; j < 64; ++j)  // hidden keys must not look like visible ones
        if (j < begin || j >= end) logits[j] = j % 2 == 0 ? 2147483647 : -2147483647 - 1;
      check(logits, begin, end, 2e-4f, kNoMax);
      if (HasFatalFailure()) return;
    }
}

TEST_P(SoftmaxS32S8Test, EveryDistance) {
  for (int32_t first = 0; first < 256 * 100; first += 256) {
    std::vector<int32_t> logits(256);
    for (int32_t j = 0; j < 256; ++j) logits[static_cast<size_t>(j)] = -first - j;
    check(logits, 0, 256, 3e-4f, 0);
    check(logits, 0, 256, 4e-3f, 0);  // through the clamp at -87
  }
}

INTATTENTION_ON_EVERY_TABLE(SoftmaxS32S8Test);

}  // namespace
}  // namespace intattention::testing
