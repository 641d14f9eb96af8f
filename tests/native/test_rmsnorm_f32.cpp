// rmsnorm_f32 of every table: the same float bits as the oracle.
#include "guarded_buffer.h"
#include "kernel_test.h"
#include "reference.h"

namespace intattention::testing {
namespace {

class RmsNormF32Test : public KernelTest {};

TEST_P(RmsNormF32Test, SameBits) {
  for (size_t n : {8, 16, 24, 64, 128, 576, 2048})
    for (float range : {1e-20f, 1e-3f, 1.0f, 300.0f}) {
      const std::vector<float> values = random_floats(n, -range, range), scales = random_floats(n, -2.0f, 2.0f);
      GuardedBuffer<float> x(values), weight(scales), y(n);
      table().rmsnorm_f32(n, x.data(), weight.data(), 1e-5f, y.data());
      const std::vector<float> expected = rmsnorm_reference(values, scales, 1e-5f);
      for (size_t i = 0; i < n; ++i)
        ASSERT_EQ(bits_of(y[i]), bits_of(expected[i])) << "n " << n << " range " << range << " at " << i;
      EXPECT_TRUE(y.intact());
    }
}

TEST_P(RmsNormF32Test, Zeros) {
  GuardedBuffer<float> x(std::vector<float>(64, 0.0f)), weight(std::vector<float>(64, 3.0f)), y(64);
  table().rmsnorm_f32(64, x.data(), weight.data(), 1e-6f, y.data());
  for (size_t i = 0; i < 64; ++i) ASSERT_EQ(y[i], 0.0f);
}

INTATTENTION_ON_EVERY_TABLE(RmsNormF32Test);

}  // namespace
}  // namespace intattention::testing
