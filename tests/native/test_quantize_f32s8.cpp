// quantize_f32s8 of every table: exact int8, exact sums, the same float bits for the scale.
#include <limits>

#include "guarded_buffer.h"
#include "kernel_test.h"
#include "reference.h"

namespace intattention::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

class QuantizeF32S8Test : public KernelTest {
 protected:
  void check(const std::vector<float>& values, size_t group, bool with_sum = true) {
    SCOPED_TRACE(::testing::Message() << values.size() << " values, group " << group);
    const size_t groups = values.size() / group;
    GuardedBuffer<float> x(values), scale(groups);
    GuardedBuffer<int32_t> sum(groups);
    GuardedBuffer<int8_t> q(values.size());
    table().quantize_f32s8(groups, group, x.data(), q.data(), scale.data(), with_sum ? sum.data() : nullptr);
    const Quantized expected = quantize_reference(values, group);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(int{q[i]}, int{expected.q[i]}) << i << ": " << values[i];
    for (size_t g = 0; g < groups; ++g) {
      ASSERT_TRUE(same_float(scale[g], expected.scale[g])) << scale[g] << " for " << expected.scale[g];
      if (!with_sum) continue;
      ASSERT_EQ(sum[g], expected.sum[g]);
    }
    EXPECT_TRUE(q.intact() && scale.intact() && sum.intact());
  }
};

TEST_P(QuantizeF32S8Test, Random) {
  for (size_t group : {8, 16, 24, 32, 64, 128})
    for (size_t groups : {1, 2, 3, 7})
      for (float range : {1e-30f, 0.01f, 1.0f, 1000.0f, 3e38f})
        check(random_floats(groups * group, -range, range / 3), group, groups != 2);
}

TEST_P(QuantizeF32S8Test, Zeros) {
  check(std::vector<float>(64, 0.0f), 32);
  check(std::vector<float>(64, -0.0f), 32);
}

TEST_P(QuantizeF32S8Test, Ties) {
  std::vector<float> x(64);
  for (int i = 0; i < 64; ++i) x[i] = static_cast<float>(i - 32) + 0.5f;
  x[0] = 127.0f;  // the scale is exactly 1
  check(x, 64);
  for (float& value : x) value *= 0.25f;
  check(x, 64);
  for (float& value : x) value = -value;
  check(x, 64);
}

// A denormal scale is coarse: x / s can pass 127 and is clamped; below half a step it is 0.
TEST_P(QuantizeF32S8Test, Denormals) {
  for (int steps : {1, 63, 64, 100, 127, 190, 191, 1000}) {
    std::vector<float> x(32);
    for (int i = 0; i < 32; ++i) x[i] = kDenormal * static_cast<float>(i % 2 == 0 ? steps - i : i - steps);
    check(x, 32);
  }
  std::vector<float> mixed(32, kDenormal);
  mixed[7] = 1.0f;
  check(mixed, 32);
}

TEST_P(QuantizeF32S8Test, NonFinite) {
  for (float bad : {kNan, -kNan, kInf, -kInf})
    for (size_t at = 0; at < 32; ++at) {
      std::vector<float> x = random_floats(96, -1.0f, 1.0f);  // only the middle group is bad
      x[32 + at] = bad;
      check(x, 32);
    }
}

TEST_P(QuantizeF32S8Test, NanBesideInf) {
  std::vector<float> x(32, 1.0f);
  x[3] = kInf;
  x[4] = kNan;
  x[12] = kNan;
  x[20] = -kInf;
  check(x, 32);
}

TEST_P(QuantizeF32S8Test, LargestFloats) {
  constexpr float kMax = std::numeric_limits<float>::max();
  std::vector<float> x(32, -kMax);
  x[5] = kMax;
  check(x, 32);
}

INTATTENTION_ON_EVERY_TABLE(QuantizeF32S8Test);

}  // namespace
}  // namespace intattention::testing
