// gemm_f32f32f32 of every table against double: tails of m, stride, accumulation, guard pages.
#include "float_panel_case.h"
#include "guarded_buffer.h"
#include "kernel_test.h"

namespace intattention::testing {
namespace {

constexpr double kTolerance = 1e-6;  // of the sum of magnitudes

class GemmF32Test : public KernelTest {
 protected:
  void check(size_t m, size_t n, size_t k, bool add) {
    SCOPED_TRACE(::testing::Message() << "m " << m << " n " << n << " k " << k << " add " << add);
    const size_t lda = k + 5, ldc = n + 3, stride = kFloatPanel * k + 16;
    const std::vector<float> b = random_floats(n * k, -2.0f, 2.0f);
    GuardedBuffer<float> a(random_floats((m - 1) * lda + k, -2.0f, 2.0f)), packed(pack_panels(n, k, b, stride));
    const std::vector<float> before = random_floats((m - 1) * ldc + n, -2.0f, 2.0f);
    GuardedBuffer<float> c(before);
    table().gemm_f32f32f32(m, n, k, a.data(), lda, packed.data(), stride, add, c.data(), ldc);
    for (size_t i = 0; i < m; ++i)
      for (size_t j = 0; j < (i + 1 < m ? ldc : n); ++j) {
        double sum = j >= n || add ? before[i * ldc + j] : 0.0, magnitude = std::fabs(sum);
        for (size_t l = 0; j < n && l < k; ++l) {
          sum += double{a[i * lda + l]} * b[j * k + l];
          magnitude += std::fabs(double{a[i * lda + l]} * b[j * k + l]);
        }
        ASSERT_NEAR(c[i * ldc + j], sum, j < n ? kTolerance * magnitude : 0.0) << "row " << i << " column " << j;
      }
    EXPECT_TRUE(c.intact());
  }
};

TEST_P(GemmF32Test, Shapes) {
  for (size_t m = 1; m <= 13; ++m)
    for (size_t n : {16, 32, 80})
      for (size_t k : {16, 48, 256}) {
        check(m, n, k, false);
        check(m, n, k, true);
        if (HasFatalFailure()) return;
      }
}

INTATTENTION_ON_EVERY_TABLE(GemmF32Test);

}  // namespace
}  // namespace intattention::testing
