// hadamard_f32 of every table: the same float bits as the oracle, in place and out of place; twice gives size * x.
#include "guarded_buffer.h"
#include "kernel_test.h"
#include "reference.h"

namespace intattention::testing {
namespace {

class HadamardF32Test : public KernelTest {};

TEST_P(HadamardF32Test, SameBits) {
  for (size_t size : {16, 32, 64, 128, 256, 1024})
    for (size_t blocks : {1, 3}) {
      const size_t n = size * blocks;
      const std::vector<float> values = random_floats(n, -5.0f, 5.0f);
      GuardedBuffer<float> x(values), y(n);
      const std::vector<float> expected = hadamard_reference(values, size);
      table().hadamard_f32(n, size, x.data(), y.data());
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(bits_of(x[i]), bits_of(values[i]));
        ASSERT_EQ(bits_of(y[i]), bits_of(expected[i])) << "n " << n << " size " << size << " at " << i;
      }
      table().hadamard_f32(n, size, x.data(), x.data());
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(bits_of(x[i]), bits_of(expected[i])) << "in place, at " << i;
      EXPECT_TRUE(x.intact() && y.intact());
    }
}

TEST_P(HadamardF32Test, IsItsOwnInverse) {
  std::vector<float> x(128), y(128);
  for (size_t i = 0; i < 128; ++i) x[i] = static_cast<float>(random_int(-1000, 1000));
  table().hadamard_f32(128, 64, x.data(), y.data());
  table().hadamard_f32(128, 64, y.data(), y.data());
  for (size_t i = 0; i < 128; ++i) EXPECT_EQ(y[i], 64.0f * x[i]);
}

INTATTENTION_ON_EVERY_TABLE(HadamardF32Test);

}  // namespace
}  // namespace intattention::testing
