// attention_float on every table: against double, masks, threads.
#include "attention_float.h"

#include <cmath>

#include "error.h"
#include "kernel_test.h"

namespace intattention::testing {
namespace {

constexpr double kFp32Tolerance = 1e-5, kFp16Tolerance = 5e-3;  // of the largest output

struct Case {
  size_t heads, kv_heads, q_len, kv_len, d;
  bool causal = true;
  size_t window = 0, prefix = 0;
};

class AttentionFloatTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (!IsSkipped()) use_isa(table().name);
  }
  void TearDown() override { use_isa(runnable_tables().front()->name); }

  std::vector<FloatPrecision> precisions() const {
    const bool fp16 = table().gemm_f16f16f32 != nullptr || table().widen_f16f32 != nullptr;
    return fp16 ? std::vector<FloatPrecision>{FloatPrecision::kFp32, FloatPrecision::kFp16}
                : std::vector<FloatPrecision>{FloatPrecision::kFp32};
  }

  static AttentionShape shape_of(const Case& c) {
    const Mask mask{c.kv_len, c.causal ? c.kv_len - c.q_len : 0, c.causal, c.window, c.prefix};
    return {c.heads, c.kv_heads, c.d, c.q_len, mask, 1.0f / std::sqrt(static_cast<float>(c.d))};
  }

  std::vector<double> reference(const AttentionShape& s, const float* q, const float* k, const float* v) {
    std::vector<double> out(s.n_heads * s.q_len * s.head_dim, 0.0), p(s.mask.kv_len);
    for (size_t row = 0; row < s.n_heads * s.q_len; ++row) {
      const size_t kv = row / s.q_len / s.group() * s.mask.kv_len * s.head_dim, d = s.head_dim;
      const KeySpan span = s.mask.visible(row % s.q_len);
      double max = -1e300, sum = 0.0;
      for (size_t j = span.begin; j < span.end; ++j) {
        p[j] = 0.0;
        for (size_t c = 0; c < d; ++c) p[j] += double{q[row * d + c]} * k[kv + j * d + c];
        max = std::max(max, p[j]);
      }
      for (size_t j = span.begin; j < span.end; ++j) sum += p[j] = std::exp((p[j] - max) * s.scale);
      for (size_t j = span.begin; j < span.end; ++j)
        for (size_t c = 0; c < d; ++c) out[row * d + c] += p[j] / sum * v[kv + j * d + c];
    }
    return out;
  }

  void check(const Case& c) {
    SCOPED_TRACE(::testing::Message() << c.heads << "/" << c.kv_heads << " heads, " << c.q_len << " x " << c.kv_len
                                      << ", d " << c.d << " window " << c.window << " prefix " << c.prefix);
    const AttentionShape shape = shape_of(c);
    const std::vector<float> q = random_floats(c.heads * c.q_len * c.d, -2, 2);
    const std::vector<float> k = random_floats(c.kv_heads * c.kv_len * c.d, -2, 2);
    const std::vector<float> v = random_floats(k.size(), -2, 2);
    const std::vector<double> expected = reference(shape, q.data(), k.data(), v.data());
    double largest = 0.0;
    for (double x : expected) largest = std::max(largest, std::fabs(x));
    for (FloatPrecision precision : precisions()) {
      const double tolerance = precision == FloatPrecision::kFp32 ? kFp32Tolerance : kFp16Tolerance;
      std::vector<float> first;
      for (int threads : {1, 2, 5}) {
        ThreadPool pool(threads, {});
        std::vector<float> out(q.size(), std::nanf(""));
        attention_float(pool, shape, precision, q.data(), k.data(), v.data(), out.data());
        if (first.empty()) first = out;
        for (size_t i = 0; i < out.size(); ++i) {
          ASSERT_EQ(bits_of(out[i]), bits_of(first[i])) << threads << " threads, element " << i;
          ASSERT_NEAR(out[i], expected[i], tolerance * largest) << "element " << i;
        }
      }
    }
  }
};

TEST_P(AttentionFloatTest, ShapesAndMasks) {
  for (const Case& c : {Case{1, 1, 1, 1, 16}, Case{2, 1, 33, 300, 80}, Case{9, 3, 20, 20, 64}, Case{4, 4, 1, 1100, 96},
                        Case{2, 2, 50, 10, 128, false}, Case{1, 1, 60, 300, 256, true, 17},
                        Case{5, 1, 30, 270, 48, true, 0, 260}, Case{60, 1, 3, 17, 32}}) {
    check(c);
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionFloatTest, OverflowIsReported) {
  const AttentionShape shape = shape_of({1, 1, 1, 1, 16});
  const std::vector<float> huge(16, 1e30f);
  std::vector<float> out(16);
  ThreadPool pool(1, {});
  EXPECT_THROW(attention_float(pool, shape, FloatPrecision::kFp32, huge.data(), huge.data(), huge.data(), out.data()),
               NumericError);
}

TEST_P(AttentionFloatTest, MissingFloat16NamesTheIsa) {
  if (precisions().size() == 2) GTEST_SKIP() << "has float16";
  const AttentionShape shape = shape_of({1, 1, 1, 1, 16});
  std::vector<float> x(16, 1.0f);
  ThreadPool pool(1, {});
  try {
    attention_float(pool, shape, FloatPrecision::kFp16, x.data(), x.data(), x.data(), x.data());
    FAIL() << "no exception";
  } catch (const UnsupportedIsa& error) {
    EXPECT_NE(std::string(error.what()).find(table().name), std::string::npos) << error.what();
  }
}

INTATTENTION_ON_EVERY_TABLE(AttentionFloatTest);

}  // namespace
}  // namespace intattention::testing
