// softmax_f32f32 and softmax_f32f16 of every table against exp in double: visible ranges, running maximum, sums.
#include "float_panel_case.h"
#include "guarded_buffer.h"
#include "kernel_test.h"

namespace intattention::testing {
namespace {

constexpr double kF32Relative = 2e-6, kF32Absolute = 2e-38;   // exp and (x - max) * scale; 2^-126
constexpr double kF16Relative = 6e-3, kF16Absolute = 1.2e-7;  // kernel_table.h; 2 subnormal steps

class SoftmaxFloatTest : public KernelTest {
 protected:
  // T float: softmax_f32f32, in place too; uint16_t: softmax_f32f16.
  template <typename T>
  void check(size_t n, uint32_t begin, uint32_t end, float size, float running, float scale) {
    constexpr bool f16 = sizeof(T) == 2;
    SCOPED_TRACE(::testing::Message() << "n " << n << " keys " << begin << ".." << end << " size " << size);
    const std::vector<float> x = random_floats(n, -size, size);
    GuardedBuffer<float> logits(x);
    GuardedBuffer<T> probs(n);
    SoftmaxRow row{begin, end, scale, running, -1.0f};
    if constexpr (f16)
      table().softmax_f32f16(n, logits.data(), &row, probs.data());
    else
      table().softmax_f32f32(n, logits.data(), &row, probs.data());
    float max = running;
    for (uint32_t j = begin; j < end; ++j) max = std::max(max, x[j]);
    ASSERT_EQ(row.max, max);
    double sum = 0.0;
    for (size_t j = 0; j < n; ++j) {
      const bool visible = j >= begin && j < end;
      const double expected = visible ? std::exp((double{x[j]} - max) * scale) : 0.0;
      double got;
      if constexpr (f16)
        got = f16_to_f32(probs[j]);
      else
        got = probs[j];
      // (x - max) * scale is rounded once in float32 and once more in float16
      const double argument = (max - x[j]) * scale * (f16 ? 5e-4 : 1.2e-7);
      const double tolerance =
          visible ? expected * ((f16 ? kF16Relative : kF32Relative) + argument) + (f16 ? kF16Absolute : kF32Absolute)
                  : 0.0;
      ASSERT_NEAR(got, expected, tolerance) << "key " << j << " logit " << x[j];
      sum += got;
    }
    EXPECT_NEAR(row.sum, sum, sum * (f16 ? 2e-3 : 1e-6));
    EXPECT_TRUE(probs.intact() && logits.intact());
    if constexpr (!f16) {
      SoftmaxRow again{begin, end, scale, running, -1.0f};
      table().softmax_f32f32(n, logits.data(), &again, logits.data());
      for (size_t j = 0; j < n; ++j) ASSERT_EQ(bits_of(logits[j]), bits_of(probs[j])) << "in place, key " << j;
    }
  }

  template <typename T>
  void check_grid() {
    for (size_t n : {16, 48, 256})
      for (uint32_t begin : {0u, 1u, 7u, 15u, 16u, 33u, 256u})
        for (uint32_t end : {0u, 1u, 8u, 16u, 17u, 47u, 255u, 256u}) {
          if (begin > n || end > n) continue;
          for (float size : {0.01f, 3.0f, 500.0f}) {
            check<T>(n, begin, end, size, kNoLogit, 0.125f);
            check<T>(n, begin, end, size, 2.0f, 1.0f);
          }
          if (HasFatalFailure()) return;
        }
  }
};

TEST_P(SoftmaxFloatTest, F32) { check_grid<float>(); }

TEST_P(SoftmaxFloatTest, F16) {
  if (table().softmax_f32f16 == nullptr) GTEST_SKIP() << table().name << " has no float16 arithmetic";
  check_grid<uint16_t>();
}

TEST_P(SoftmaxFloatTest, NanIsNotHidden) {
  std::vector<float> x = random_floats(64, -1.0f, 1.0f);
  x[21] = std::nanf("");
  std::vector<float> probs(64);
  SoftmaxRow row{0, 64, 1.0f, 2.0f, 0.0f};
  table().softmax_f32f32(64, x.data(), &row, probs.data());
  EXPECT_TRUE(std::isnan(row.sum) || std::isnan(row.max));
}

TEST_P(SoftmaxFloatTest, NarrowAndWiden) {
  std::vector<float> x = random_floats(4096, -3.0f, 3.0f);
  for (size_t i = 0; i < 1024; ++i) x[i] *= 1e-5f;          // subnormal float16
  for (size_t i = 1024; i < 2048; ++i) x[i] = x[i] * 2e4f;  // up to 60000
  for (size_t i = 2048; i < 3072; ++i)                      // ties
    x[i] = 0.5f * (f16_to_f32(static_cast<uint16_t>(8 * i)) + f16_to_f32(static_cast<uint16_t>(8 * i + 1)));
  GuardedBuffer<float> in(x), back(x.size());
  GuardedBuffer<uint16_t> half(x.size());
  if (table().narrow_f32f16 == nullptr) GTEST_SKIP() << table().name << " has no float16";
  table().narrow_f32f16(x.size(), in.data(), half.data());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(half[i], f16_bits(x[i])) << x[i];
  if (table().widen_f16f32 == nullptr) return;
  table().widen_f16f32(x.size(), half.data(), back.data());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(bits_of(back[i]), bits_of(f16_to_f32(half[i])));
}

INTATTENTION_ON_EVERY_TABLE(SoftmaxFloatTest);

}  // namespace
}  // namespace intattention::testing
