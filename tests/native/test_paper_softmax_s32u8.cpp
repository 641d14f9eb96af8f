// paper_softmax_s32u8 of every table, and the division of paper_index.h: exact against docs/numerics.md section 7.
#include "guarded_buffer.h"
#include "kernel_test.h"
#include "paper_index.h"
#include "reference.h"

namespace intattention::testing {
namespace {

constexpr int32_t kLargestLogit = 128 * 128 * 1024;  // of vectors of 1024 elements
constexpr PaperRounding kRoundings[] = {PaperRounding::kNearest, PaperRounding::kFloor};
constexpr int32_t kClips[] = {1, 2, 31, 63, 64, 65, 127, 1000, 14191, 56273, 228857, 541201, 1 << 25, 2147483647};

int index_reference(int64_t delta, int64_t c, PaperRounding rounding) {
  delta = std::min(delta, c);
  return static_cast<int>(rounding == PaperRounding::kFloor ? 31 * delta / c : (62 * delta + c) / (2 * c));
}

TEST(PaperIndexTest, TheMultiplicationDividesExactly) {
  for (PaperRounding rounding : kRoundings)
    for (int64_t c = 1; c <= 2147483647; c = c * 9 / 8 + 1) {
      const PaperIndex index = paper_index(static_cast<int32_t>(c), rounding);
      ASSERT_TRUE(index.multiplier >= 1u << 31 && index.shift >= 1 && index.shift <= 31) << c;
      for (int64_t step = 0; step <= 62; ++step)
        for (int64_t off = -2; off <= 2; ++off) {
          const int64_t delta = std::min<int64_t>(std::max<int64_t>(step * c / 62 + off, 0), 2 * kLargestLogit);
          const uint64_t left = static_cast<uint64_t>(std::min(delta, c)) << index.lshift;
          const uint32_t upper = static_cast<uint32_t>(left * index.multiplier >> 32);
          ASSERT_EQ(static_cast<int>((upper + index.half) >> index.shift), index_reference(delta, c, rounding))
              << "delta " << delta << " c " << c;
        }
    }
}

TEST(PaperIndexTest, Clip) {
  EXPECT_EQ(paper_clip(0.05f, 0.04f, 0.13f, PaperRounding::kFloor), 25384);  // 25384.6
  EXPECT_EQ(paper_clip(0.05f, 0.04f, 0.13f, PaperRounding::kNearest), 25385);
  for (PaperRounding rounding : kRoundings) {
    EXPECT_EQ(paper_clip(0.0f, 0.0f, 0.125f, rounding), 2147483647);
    EXPECT_EQ(paper_clip(1e-30f, 1.0f, 0.125f, rounding), 2147483647);
    EXPECT_EQ(paper_clip(1e10f, 1e10f, 1.0f, rounding), 1);
  }
}

class PaperSoftmaxTest : public KernelTest {
 protected:
  void check(const std::vector<int32_t>& logits, size_t begin, size_t end, int32_t c, PaperRounding rounding) {
    const size_t n = logits.size();
    SCOPED_TRACE(::testing::Message() << "n " << n << " visible [" << begin << ", " << end << ") c " << c);
    GuardedBuffer<int32_t> input(logits);
    GuardedBuffer<uint8_t> probs(n);
    const PaperIndex index = paper_index(c, rounding);
    const uint32_t sum = table().paper_softmax_s32u8(n, input.data(), begin, end, &index, probs.data());
    int64_t max = INT64_MIN, expected_sum = 0;
    for (size_t j = begin; j < end; ++j) max = std::max<int64_t>(max, logits[j]);
    const auto weight = [&](size_t j) { return paper_lut_reference(index_reference(max - logits[j], c, rounding)); };
    for (size_t j = begin; j < end; ++j) expected_sum += weight(j);
    ASSERT_EQ(int64_t{sum}, expected_sum);
    for (size_t j = 0; j < n; ++j) {
      const bool visible = j >= begin && j < end;
      const double exact = visible ? 255.0 * weight(j) / static_cast<double>(expected_sum) : 0.0;
      ASSERT_EQ(int{probs[j]}, static_cast<int>(std::nearbyint(exact))) << "key " << j;
    }
    EXPECT_TRUE(probs.intact());
  }
};

TEST_P(PaperSoftmaxTest, Random) {
  for (PaperRounding rounding : kRoundings)
    for (int32_t c : kClips)
      for (size_t n : {16, 32, 272, 2048})
        for (int64_t range : {int64_t{c} / 4, int64_t{c}, int64_t{kLargestLogit}}) {
          const int limit = static_cast<int>(std::min<int64_t>(range, kLargestLogit));
          check(random_ints<int32_t>(n, -limit, limit), 0, n, c, rounding);
          if (HasFatalFailure()) return;
        }
}

TEST_P(PaperSoftmaxTest, VisibleRanges) {
  const std::vector<size_t> edges = {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64};
  for (PaperRounding rounding : kRoundings)
    for (size_t begin : edges)
      for (size_t end : edges) {
        if (begin > end) continue;
        std::vector<int32_t> logits = random_ints<int32_t>(64, -20000, 20000);
        for (size_t j = 0; j < 64; ++j)  // hidden keys must not look like visible ones
          if (j < begin || j >= end) logits[j] = j % 2 == 0 ? 2147483647 : -2147483647 - 1;
        check(logits, begin, end, 30000, rounding);
        if (HasFatalFailure()) return;
      }
}

// Every sum from rows of equal keys: ties of 255 * 255 / sum, and rows where every P is 0.
TEST_P(PaperSoftmaxTest, FlatRows) {
  for (size_t n = 16; n <= 1040; n += 16)
    for (size_t end = n - 15; end <= n; ++end)
      check(std::vector<int32_t>(n, -777), 0, end, 5000, PaperRounding::kNearest);
}

INTATTENTION_ON_EVERY_TABLE(PaperSoftmaxTest);

}  // namespace
}  // namespace intattention::testing
