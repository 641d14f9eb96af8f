// out = out * decay + float(sum) * scale, bit for bit, without touching what lies behind the buffers.
#include "guarded_buffer.h"
#include "kernel_test.h"

namespace intattention::testing {
namespace {

class AccumulateS32F32Test : public KernelTest {};

TEST_P(AccumulateS32F32Test, EqualsTheFormula) {
  for (size_t n : {8u, 16u, 64u, 80u, 256u})
    for (float decay : {0.0f, 1.0f, 0.37f}) {
      GuardedBuffer<int32_t> sum(n);
      GuardedBuffer<float> out(n);
      std::vector<float> expected(n);
      const float scale = random_float(1e-4f, 2.0f);
      for (size_t i = 0; i < n; ++i) {
        sum.data()[i] = random_int(-2147483647, 2147483647);
        out.data()[i] = random_float(-100.0f, 100.0f);
        const float kept = out.data()[i] * decay, added = static_cast<float>(sum.data()[i]) * scale;
        expected[i] = kept + added;
      }
      table().accumulate_s32f32(n, decay, scale, sum.data(), out.data());
      for (size_t i = 0; i < n; ++i) ASSERT_TRUE(same_float(out.data()[i], expected[i])) << i;
    }
}

INTATTENTION_ON_EVERY_TABLE(AccumulateS32F32Test);

}  // namespace
}  // namespace intattention::testing
