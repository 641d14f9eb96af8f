// gemm_s8s8s32 of every table: exact against the triple loop, with guard pages behind each buffer.
#include "guarded_buffer.h"
#include "kernel_test.h"
#include "packing.h"
#include "reference.h"

namespace intattention::testing {
namespace {

struct Shape {
  size_t m, n, k, lda_pad, ldc_pad, slack;
};

class GemmS8S8S32Test : public KernelTest {
 protected:
  void check(const Shape& s, const std::vector<int8_t>& a, const std::vector<int8_t>& b) {
    SCOPED_TRACE(::testing::Message() << "m " << s.m << " n " << s.n << " k " << s.k << " lda +" << s.lda_pad
                                      << " slack " << s.slack);
    const size_t lda = s.k + s.lda_pad, columns = (s.n + 7) / 8 * 8, ldc = columns + s.ldc_pad;
    GuardedBuffer<int8_t> a_buffer((s.m - 1) * lda + s.k, s.slack);
    for (size_t i = 0; i < s.m; ++i) std::copy_n(a.data() + i * s.k, s.k, a_buffer.data() + i * lda);

    const B8Layout layout{table().attention_inner, 8 * s.k + 32};  // tiles may lie apart
    std::vector<int8_t> packed(pack_b8_bytes(s.n, layout));
    pack_b8(s.n, s.k, b.data(), s.k, layout, packed.data());
    packed.resize(packed.size() - 32);  // nothing may be read behind the last tile
    GuardedBuffer<int8_t> b_buffer(packed);

    GuardedBuffer<int32_t> c((s.m - 1) * ldc + columns);
    const int32_t untouched = c[0];
    table().gemm_s8s8s32(s.m, s.n, s.k, a_buffer.data(), lda, b_buffer.data(), layout.tile_stride, c.data(), ldc);
    for (size_t i = 0; i < s.m; ++i) {
      for (size_t j = 0; j < (i + 1 < s.m ? ldc : columns); ++j) {
        const int32_t expected = j < s.n       ? dot_reference(s.k, a.data() + i * s.k, b.data() + j * s.k)
                                 : j < columns ? 0
                                               : untouched;
        ASSERT_EQ(c[i * ldc + j], expected) << "row " << i << " column " << j;
      }
    }
    EXPECT_TRUE(c.intact());
  }
  void check_random(const Shape& s) {
    check(s, random_ints<int8_t>(s.m * s.k, -128, 127), random_ints<int8_t>(s.n * s.k, -128, 127));
  }
};

TEST_P(GemmS8S8S32Test, GridOfShapes) {
  for (size_t m = 1; m <= 13; ++m)
    for (size_t n : {1, 7, 8, 9, 16, 24})
      for (size_t k : {size_t{table().attention_inner}, size_t{16}, size_t{24}, size_t{32}, size_t{64}, size_t{80},
                       size_t{96}, size_t{128}, size_t{256}}) {
        check_random({m, n, k, 0, 0, 0});
        if (HasFatalFailure()) return;
      }
}

TEST_P(GemmS8S8S32Test, StridesAndMisalignedA) {
  for (size_t m : {1, 3, 4, 8, 9})
    for (size_t slack : {1, 2, 3, 5, 15}) check_random({m, 17, 64, 3 * slack, 4, slack});
}

TEST_P(GemmS8S8S32Test, DecodeAndPrefillShapes) {
  for (size_t m : {1, 3, 32}) {
    check_random({m, 256, 64, 0, 0, 0});
    check_random({m, 64, 256, 0, 0, 0});
    check_random({m, 256, 128, 0, 0, 0});
    check_random({m, 128, 256, 0, 0, 0});
  }
}

TEST_P(GemmS8S8S32Test, Extremes) {
  for (int av : {-128, 0, 1, 127, 127})
    for (int bv : {-128, -1, 0, 127})
      for (size_t m : {1, 4})
        for (size_t k : {16, 256})
          check({m, 8, k, 0, 0, 0}, std::vector<int8_t>(m * k, static_cast<int8_t>(av)),
                std::vector<int8_t>(8 * k, static_cast<int8_t>(bv)));
}

TEST_P(GemmS8S8S32Test, DeepestK) {
  constexpr size_t kDeepest = 65536;
  for (int av : {-128, 127})
    for (int bv : {-128, 127})
      check({2, 8, kDeepest, 0, 0, 0}, std::vector<int8_t>(2 * kDeepest, static_cast<int8_t>(av)),
            std::vector<int8_t>(8 * kDeepest, static_cast<int8_t>(bv)));
}

// Rows and k around the panels that kernels copy A into.
TEST_P(GemmS8S8S32Test, PanelEdges) {
  for (size_t m : {31, 32, 33, 65})
    for (size_t k : {248, 256, 264, 504, 512, 520, 1032}) {
      check_random({m, 33, k, 0, 0, 0});
      if (HasFatalFailure()) return;
    }
}

INTATTENTION_ON_EVERY_TABLE(GemmS8S8S32Test);

}  // namespace
}  // namespace intattention::testing
