// swiglu_f32 of every table: the same float bits as the oracle; and exp_f32 against exp in double.
#include <limits>

#include "guarded_buffer.h"
#include "kernel_test.h"
#include "reference.h"

namespace intattention::testing {
namespace {

// Seven roundings of the polynomial at 2^-24 each, plus the truncated series (1.2e-7).
constexpr double kExpTolerance = 3e-7;

class SwigluF32Test : public KernelTest {
 protected:
  void check(const std::vector<float>& gates, const std::vector<float>& ups) {
    GuardedBuffer<float> gate(gates), up(ups), y(gates.size());
    table().swiglu_f32(gates.size(), gate.data(), up.data(), y.data());
    for (size_t i = 0; i < gates.size(); ++i) {
      const float expected = swiglu_reference(gates[i], ups[i]);
      ASSERT_TRUE(same_float(y[i], expected)) << gates[i] << ", " << ups[i] << ": " << y[i] << " for " << expected;
    }
    EXPECT_TRUE(y.intact());
  }
};

TEST_P(SwigluF32Test, Random) {
  for (size_t n : {8, 16, 24, 1536})
    for (float range : {1e-6f, 1.0f, 20.0f, 100.0f, 1e6f})
      check(random_floats(n, -range, range), random_floats(n, -3.0f, 3.0f));
}

TEST_P(SwigluF32Test, Edges) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  check(
      {0.0f, -0.0f, 87.0f, -87.0f, 88.0f, -88.0f, 88.5f, -88.5f, inf, -inf, nan, 1e-40f, -1e-40f, 3e38f, -3e38f, 1.0f},
      std::vector<float>(16, 1.5f));
}

TEST(ExpF32, CloseToExp) {
  for (int i = -8700; i <= 8800; ++i) {
    const float x = static_cast<float>(i) * 0.01f;
    const double expected = std::exp(static_cast<double>(x));
    ASSERT_NEAR(static_cast<double>(exp_f32(x)) / expected, 1.0, kExpTolerance) << x;
  }
}

INTATTENTION_ON_EVERY_TABLE(SwigluF32Test);

}  // namespace
}  // namespace intattention::testing
