// gemm_u8s8s32 of every table: exact against the triple loop, with guard pages behind each buffer.
#include "guarded_buffer.h"
#include "kernel_test.h"
#include "packing.h"
#include "reference.h"

namespace intattention::testing {
namespace {

struct Shape {
  size_t m, n, k, lda_pad, ldc_pad, slack;
};

class GemmU8S8S32Test : public KernelTest {
 protected:
  void check(const Shape& s, const std::vector<uint8_t>& a, const std::vector<int8_t>& b) {
    SCOPED_TRACE(::testing::Message() << "m " << s.m << " n " << s.n << " k " << s.k << " lda +" << s.lda_pad
                                      << " slack " << s.slack);
    const size_t lda = s.k + s.lda_pad, columns = (s.n + 7) / 8 * 8, ldc = columns + s.ldc_pad;
    GuardedBuffer<uint8_t> a_buffer((s.m - 1) * lda + s.k, s.slack);
    for (size_t i = 0; i < s.m; ++i) std::copy_n(a.data() + i * s.k, s.k, a_buffer.data() + i * lda);

    const B8Layout layout{table().attention_inner, 8 * s.k + 32};  // tiles may lie apart
    std::vector<int8_t> packed(pack_b8_bytes(s.n, layout));
    pack_b8(s.n, s.k, b.data(), s.k, layout, packed.data());
    packed.resize(packed.size() - 32);  // nothing may be read behind the last tile
    GuardedBuffer<int8_t> b_buffer(packed);

    GuardedBuffer<int32_t> c((s.m - 1) * ldc + columns);
    const int32_t untouched = c[0];
    table().gemm_u8s8s32(s.m, s.n, s.k, a_buffer.data(), lda, b_buffer.data(), layout.tile_stride, c.data(), ldc);
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
    check(s, random_ints<uint8_t>(s.m * s.k, 0, 255), random_ints<int8_t>(s.n * s.k, -128, 127));
  }
};

TEST_P(GemmU8S8S32Test, GridOfShapes) {
  for (size_t m = 1; m <= 13; ++m)
    for (size_t n : {1, 7, 8, 9, 16, 24})
      for (size_t k : {size_t{table().attention_inner}, size_t{16}, size_t{24}, size_t{32}, size_t{64}, size_t{80},
                       size_t{96}, size_t{128}, size_t{256}}) {
        check_random({m, n, k, 0, 0, 0});
        if (HasFatalFailure()) return;
      }
}

TEST_P(GemmU8S8S32Test, StridesAndMisalignedA) {
  for (size_t m : {1, 3, 4, 8, 9})
    for (size_t slack : {1, 2, 3, 5, 15}) check_random({m, 17, 64, 3 * slack, 4, slack});
}

TEST_P(GemmU8S8S32Test, DecodeAndPrefillShapes) {
  for (size_t m : {1, 3, 32}) {
    check_random({m, 256, 64, 0, 0, 0});
    check_random({m, 64, 256, 0, 0, 0});
    check_random({m, 256, 128, 0, 0, 0});
    check_random({m, 128, 256, 0, 0, 0});
  }
}

TEST_P(GemmU8S8S32Test, Extremes) {
  for (int av : {0, 0, 1, 127, 255})
    for (int bv : {-128, -1, 0, 127})
      for (size_t m : {1, 4})
        for (size_t k : {16, 256})
          check({m, 8, k, 0, 0, 0}, std::vector<uint8_t>(m * k, static_cast<uint8_t>(av)),
                std::vector<int8_t>(8 * k, static_cast<int8_t>(bv)));
}

TEST_P(GemmU8S8S32Test, DeepestK) {
  constexpr size_t kDeepest = 65536;
  for (int av : {0, 255})
    for (int bv : {-128, 127})
      check({2, 8, kDeepest, 0, 0, 0}, std::vector<uint8_t>(2 * kDeepest, static_cast<uint8_t>(av)),
            std::vector<int8_t>(8 * kDeepest, static_cast<int8_t>(bv)));
}

// Chunks of 16 k that are zero in all rows are left out, those without a byte of 128 or more need no
// correction: every mix of the three, in every order, for every height of the tile.
TEST_P(GemmU8S8S32Test, ZeroSmallAndLargeChunks) {
  for (size_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 32, 33, 40})
    for (size_t k : {size_t{16}, size_t{48}, size_t{24}, size_t{120}, size_t{256}, size_t{264}, size_t{528}}) {
      std::vector<uint8_t> a(m * k);
      for (size_t chunk = 0; chunk < k; chunk += 16) {
        const int high = std::vector<int>{0, 0, 127, 255}[random_int(0, 3)];
        for (size_t i = 0; i < m; ++i)
          for (size_t l = chunk; l < std::min(chunk + 16, k); ++l)
            a[i * k + l] = static_cast<uint8_t>(random_int(0, high));
      }
      check({m, 24, k, 0, 0, 0}, a, random_ints<int8_t>(24 * k, -128, 127));
      if (HasFatalFailure()) return;
    }
}

TEST_P(GemmU8S8S32Test, OneByteOfARow) {
  constexpr size_t kKeys = 256;
  const std::vector<int8_t> b = random_ints<int8_t>(8 * kKeys, -128, 127);
  for (size_t m : {1, 3, 9, 13})
    for (uint8_t value : {uint8_t{1}, uint8_t{128}, uint8_t{255}})
      for (size_t l = 0; l < kKeys; ++l) {
        std::vector<uint8_t> a(m * kKeys, 0);
        a[l % m * kKeys + l] = value;
        check({m, 8, kKeys, 0, 0, 0}, a, b);
        if (HasFatalFailure()) return;
      }
}

TEST_P(GemmU8S8S32Test, AllZero) {
  for (size_t m : {1, 4, 13, 32})
    for (size_t k : {16, 256, 512})
      check({m, 16, k, 0, 0, 0}, std::vector<uint8_t>(m * k, 0), random_ints<int8_t>(16 * k, -128, 127));
}

// Column sums at both ends of their range, in chunks that all take the correction.
TEST_P(GemmU8S8S32Test, LargestColumnSums) {
  for (int bv : {-128, 127})
    for (size_t k : {256, 512})
      check({32, 16, k, 0, 0, 0}, std::vector<uint8_t>(32 * k, 128),
            std::vector<int8_t>(16 * k, static_cast<int8_t>(bv)));
}

// --- what kernels that skip zero chunks of 16 k, or sort chunks by size, could get wrong ---

TEST_P(GemmU8S8S32Test, ZeroChunksBetweenOthers) {
  for (size_t m : {1, 4, 6, 8, 11})
    for (size_t k : {16, 32, 48, 72, 112, 256, 264, 512, 528, 1032})
      for (int zero_share : {50, 90, 100}) {
        std::vector<uint8_t> a = random_ints<uint8_t>(m * k, 0, 255);
        // zero over all rows, or in one row alone
        for (size_t start = 0; start < k; start += 16) {
          const bool zero = random_int(1, 100) <= zero_share;
          const size_t alone = static_cast<size_t>(random_int(0, static_cast<int>(m) - 1));
          for (size_t i = 0; i < m; ++i)
            if (zero || i == alone) std::fill_n(a.begin() + i * k + start, std::min<size_t>(16, k - start), 0);
        }
        check({m, 24, k, 0, 0, 0}, a, random_ints<int8_t>(24 * k, -128, 127));
        if (HasFatalFailure()) return;
      }
}

// Sums of 8 and 16 bytes around 127 and 255 with values of V at both ends: 16-bit partial sums at their limit.
TEST_P(GemmU8S8S32Test, PartialSumsAtTheLimit) {
  for (int v : {-128, 127})
    for (int sum : {126, 127, 128, 254, 255, 256, 510})
      for (size_t step : {1, 2, 4, 8})
        for (size_t offset = 0; offset < step; ++offset) {
          std::vector<uint8_t> a(3 * 64);
          int left = sum;  // spread over every step-th byte of 8, up to 255 each
          for (size_t kk = 8 + offset; kk < 16 && left > 0; kk += step) {
            const int share = std::min({255, left, sum * static_cast<int>(step) / 8 + 1});
            a[64 + kk] = a[64 + kk + 8] = static_cast<uint8_t>(share);
            left -= share;
          }
          check({3, 9, 64, 0, 0, 0}, a, std::vector<int8_t>(9 * 64, static_cast<int8_t>(v)));
          if (HasFatalFailure()) return;
        }
}

// The same for what meets in a lane of 16 bits: of each step of 4 k two bytes, added up over 1, 2 or 4 steps.
TEST_P(GemmU8S8S32Test, LaneSumsAtTheLimit) {
  for (int v : {-128, 127})
    for (int sum : {255, 256, 257, 258, 259, 510})
      for (size_t steps : {1, 2, 4})
        for (size_t first = 0; first + steps <= 4; ++first)
          for (size_t lane : {0, 1}) {
            std::vector<uint8_t> a(3 * 64);
            int left = sum;
            for (size_t i = 0; i < 2 * steps; ++i) {
              const int share =
                  std::min(255, (left + static_cast<int>(2 * steps - i) - 1) / static_cast<int>(2 * steps - i));
              a[64 + 32 + (first + i / 2) * 4 + lane * 2 + i % 2] = static_cast<uint8_t>(share);
              left -= share;
            }
            check({3, 17, 64, 0, 0, 0}, a, std::vector<int8_t>(17 * 64, static_cast<int8_t>(v)));
            if (HasFatalFailure()) return;
          }
}

TEST_P(GemmU8S8S32Test, SmallValuesAndMixedSizes) {
  for (int most : {1, 7, 15, 16, 31, 127})
    for (size_t m : {3, 6, 13})
      for (size_t k : {256, 520}) {
        std::vector<uint8_t> a = random_ints<uint8_t>(m * k, 0, most);
        for (size_t large = 0; large < k; large += 48) a[(large % m) * k + large] = 255;
        check({m, 40, k, 0, 0, 0}, a, random_ints<int8_t>(40 * k, -128, 127));
        if (HasFatalFailure()) return;
      }
}

INTATTENTION_ON_EVERY_TABLE(GemmU8S8S32Test);

}  // namespace
}  // namespace intattention::testing
