// gemm_f16f16f32 of every table that has it, against double on the rounded inputs.
#include "float_panel_case.h"
#include "guarded_buffer.h"
#include "kernel_test.h"

namespace intattention::testing {
namespace {

// A chain of 64 additions, each rounded to 2^-11 of a partial sum that stays below the sum of magnitudes.
constexpr double kTolerance = 4e-3;

class GemmF16Test : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (!IsSkipped() && table().gemm_f16f16f32 == nullptr) GTEST_SKIP() << table().name << " has no float16 arithmetic";
  }

  std::vector<uint16_t> random_f16(size_t count, float low, float high) {
    std::vector<uint16_t> bits;
    for (float x : random_floats(count, low, high)) bits.push_back(f16_bits(x));
    return bits;
  }

  void check(size_t m, size_t n, size_t k, bool add) {
    SCOPED_TRACE(::testing::Message() << "m " << m << " n " << n << " k " << k << " add " << add);
    const size_t lda = k + 5, ldc = n + 3, stride = kFloatPanel * k + 16;
    const std::vector<uint16_t> b = random_f16(n * k, -2.0f, 2.0f);
    GuardedBuffer<uint16_t> a(random_f16((m - 1) * lda + k, -2.0f, 2.0f)), packed(pack_panels(n, k, b, stride));
    const std::vector<float> before = random_floats((m - 1) * ldc + n, -2.0f, 2.0f);
    GuardedBuffer<float> c(before);
    table().gemm_f16f16f32(m, n, k, a.data(), lda, packed.data(), stride, add, c.data(), ldc);
    for (size_t i = 0; i < m; ++i)
      for (size_t j = 0; j < (i + 1 < m ? ldc : n); ++j) {
        double sum = j >= n || add ? before[i * ldc + j] : 0.0, magnitude = std::fabs(sum);
        for (size_t l = 0; j < n && l < k; ++l) {
          const double product = double{f16_to_f32(a[i * lda + l])} * f16_to_f32(b[j * k + l]);
          sum += product;
          magnitude += std::fabs(product);
        }
        ASSERT_NEAR(c[i * ldc + j], sum, j < n ? kTolerance * magnitude : 0.0) << "row " << i << " column " << j;
      }
    EXPECT_TRUE(c.intact());
  }
};

TEST_P(GemmF16Test, Shapes) {
  for (size_t m = 1; m <= 17; ++m)
    for (size_t n : {16, 48})
      for (size_t k : {16, 64, 80, 256}) {
        check(m, n, k, false);
        check(m, n, k, true);
        if (HasFatalFailure()) return;
      }
}

// 256 weights of 1 and values of 992: the total is beyond float16, no chain is.
TEST_P(GemmF16Test, ChainsDoNotOverflow) {
  const size_t k = 256;
  const std::vector<uint16_t> a(k, f16_bits(1.0f)), b(16 * k, f16_bits(992.0f));
  const std::vector<uint16_t> packed = pack_panels(16, k, b, 0);
  float c[16];
  table().gemm_f16f16f32(1, 16, k, a.data(), k, packed.data(), 0, false, c, 16);
  for (float x : c) EXPECT_EQ(x, 253952.0f);
}

INTATTENTION_ON_EVERY_TABLE(GemmF16Test);

}  // namespace
}  // namespace intattention::testing
