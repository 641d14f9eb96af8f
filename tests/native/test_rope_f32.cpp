// rope_f32 of every table: the same float bits as the oracle, in place.
#include "guarded_buffer.h"
#include "kernel_test.h"
#include "reference.h"

namespace intattention::testing {
namespace {

class RopeF32Test : public KernelTest {};

TEST_P(RopeF32Test, SameBits) {
  for (size_t n : {16, 32, 48, 64, 80, 128, 256}) {
    const std::vector<float> values = random_floats(n, -5.0f, 5.0f);
    std::vector<float> cos_values(n / 2), sin_values(n / 2);
    for (size_t i = 0; i < n / 2; ++i) {
      const double angle = 1234.0 * std::pow(1e5, -2.0 * static_cast<double>(i) / static_cast<double>(n));
      cos_values[i] = static_cast<float>(std::cos(angle));
      sin_values[i] = static_cast<float>(std::sin(angle));
    }
    GuardedBuffer<float> x(values), cos(cos_values), sin(sin_values);
    table().rope_f32(n, cos.data(), sin.data(), x.data());
    const std::vector<float> expected = rope_reference(values, cos_values, sin_values);
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(bits_of(x[i]), bits_of(expected[i])) << "n " << n << " at " << i;
    EXPECT_TRUE(x.intact());
  }
}

INTATTENTION_ON_EVERY_TABLE(RopeF32Test);

}  // namespace
}  // namespace intattention::testing
