// The fixed-point constants of the index softmax at their edges (docs/numerics.md section 3).
#include "index_scale.h"

#include <gtest/gtest.h>

#include <cmath>
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

TEST(IndexScale, LogScale) {
  EXPECT_EQ(log_scale(1.0f), 0);
  EXPECT_EQ(log_scale(2.0f), 108);
  EXPECT_EQ(log_scale(0.5f), -108);
  EXPECT_EQ(log_scale(1e-25f), -8931);
  EXPECT_EQ(log_scale(0.0f), -8931);
  EXPECT_EQ(log_scale(3.4e38f), 13765);
}

int weight(const BlockScales& scales, size_t j) { return scales.weight_low[j] + 256 * scales.weight_high[j]; }

TEST(IndexScale, ScalesFollowThePrefix) {
  std::vector<float> k(kKeyBlock, 1.0f);
  std::vector<int16_t> v(kKeyBlock, 100);
  k[3] = 2.0f;
  k[200] = 4.0f;
  v[10] = 208;
  v[20] = -400;
  BlockScales scales;
  scales.extend_to(3, k.data(), v.data());
  EXPECT_EQ(scales.key_ratio[0], 32767);
  EXPECT_EQ(scales.log_scale[0], 100);
  EXPECT_EQ(weight(scales, 0), 32767) << "all scales are the smallest";
  EXPECT_NEAR(scales.sum_unit, std::exp(-100 / kCountsPerNat), 1e-6);
  scales.extend_to(15, k.data(), v.data());
  EXPECT_EQ(scales.key_ratio[0], 16384);
  EXPECT_EQ(scales.key_ratio[3], 32767);
  EXPECT_EQ(scales.log_scale[10], 208);
  EXPECT_NEAR(weight(scales, 10), 16384, 100) << "twice the smallest scale";
  scales.extend_to(kKeyBlock, k.data(), v.data());
  EXPECT_EQ(scales.key_ratio[0], 8192);
  EXPECT_EQ(scales.k_scale_max, 4.0f);
  EXPECT_EQ(scales.lowest(), 208 - kLogScaleContrast);
  EXPECT_EQ(scales.log_scale[20], scales.lowest()) << "raised";
  EXPECT_EQ(weight(scales, 20), 32767) << "and the smallest";
  EXPECT_NEAR(weight(scales, 10), 32767 / 16, 3) << "16 times the smallest";
  EXPECT_NEAR(scales.sum_unit, std::exp(-scales.lowest() / kCountsPerNat), 1e-5);
  BlockScales at_once;
  at_once.extend_to(kKeyBlock, k.data(), v.data());
  for (size_t j = 0; j < kKeyBlock; ++j) {
    EXPECT_EQ(at_once.key_ratio[j], scales.key_ratio[j]);
    EXPECT_EQ(at_once.log_scale[j], scales.log_scale[j]);
    EXPECT_EQ(weight(at_once, j), weight(scales, j));
  }
}

}  // namespace
}  // namespace intattention
