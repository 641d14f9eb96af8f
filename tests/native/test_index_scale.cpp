// The fixed-point constants of the index softmax at their edges (docs/numerics.md section 3).
#include "index_scale.h"

#include <gtest/gtest.h>

#include <vector>

namespace intattention {
namespace {

// A vector of 1024 int8 whose magnitudes sum to `sum`.
std::vector<int8_t> with_sum(int sum) {
  std::vector<int8_t> q(1024, 0);
  for (size_t i = 0; sum > 0; ++i) {
    const int step = sum < 127 ? sum : 127;
    q[i] = static_cast<int8_t>(i % 2 == 0 ? step : -step);
    sum -= step;
  }
  return q;
}

TEST(IndexScale, NarrowShiftIsTheSmallestThatFits) {
  // 127 * sum <= 32767 * 2^n; 258 and 33024 are the last sums for n = 0 and 7.
  const struct {
    int sum, shift;
  } cases[] = {{0, 0}, {1, 0}, {258, 0}, {259, 1}, {33024, 7}, {33025, 7}, {33026, 8}, {127 * 1024, 9}};
  for (const auto& c : cases) {
    EXPECT_EQ(narrow_shift(1024, with_sum(c.sum).data()), c.shift) << c.sum;
    EXPECT_LE(127ll * c.sum, 32767ll << c.shift);
    if (c.shift > 0) {
      EXPECT_GT(127ll * c.sum, 32767ll << (c.shift - 1));
    }
  }
}

TEST(IndexScale, RowFactorIsNormalised) {
  const double unit = kCountsPerNat * 32768.0 / 32767.0;  // F of scales 1, 1, 1 and narrow 0
  for (double f : {1e-6, 0.25, 0.999, 1.0, 1.5, 4.5, 100.0, 16000.0}) {
    const RowFactor row = row_factor(static_cast<float>(f / unit), 1.0f, 1.0f, 0);
    const double value = row.factor / 32768.0 * (1 << row.lshift);
    EXPECT_NEAR(value, f, (1 << row.lshift) * 1.1 / 32768.0) << f;
    if (row.lshift > 0) {
      EXPECT_GE(row.factor, 16384) << f;
    }
  }
  EXPECT_EQ(row_factor(1e30f, 1e30f, 1.0f, 0).lshift, 15) << "infinite F";
  EXPECT_EQ(row_factor(0.0f, 1.0f, 1.0f, 3).factor, 0);
}

TEST(IndexScale, RatiosFollowThePrefix) {
  std::vector<float> k(kKeyBlock, 1.0f), v(kKeyBlock, 0.0f);
  k[3] = 2.0f;
  k[200] = 4.0f;
  v[10] = 3.0f;
  BlockRatios ratios;
  ratios.extend_to(3, k.data(), v.data());
  EXPECT_EQ(ratios.key_ratio[0], 32767);
  EXPECT_EQ(ratios.value_ratio[0], 0) << "all v scales are zero";
  ratios.extend_to(200, k.data(), v.data());
  EXPECT_EQ(ratios.key_ratio[0], 16384);
  EXPECT_EQ(ratios.key_ratio[3], 32767);
  EXPECT_EQ(ratios.value_ratio[10], 256);
  ratios.extend_to(kKeyBlock, k.data(), v.data());
  EXPECT_EQ(ratios.key_ratio[0], 8192);
  EXPECT_EQ(ratios.k_scale_max, 4.0f);
}

}  // namespace
}  // namespace intattention
