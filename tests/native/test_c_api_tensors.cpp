// Tensors and linears through the C API: strides and element types change nothing, a cache equals one call.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "intattention.hpp"
#include "packing.h"
#include "quantize_weights.h"

namespace intattention::testing {
namespace {

constexpr size_t kHeads = 4, kKvHeads = 2, kDim = 32, kKeys = 300, kQueries = 40;

std::vector<float> random_floats(size_t count, unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int>(rng() % 255) - 127) * 0x1p-6f;
  return values;
}

ia_tensor tensor(const void* data, ia_dtype dtype, size_t heads, size_t length) {
  ia_tensor t{};
  t.data = data;
  t.dtype = dtype;
  t.heads = heads;
  t.length = length;
  t.head_dim = kDim;
  return t;
}

class CApiTensors : public ::testing::Test {
 protected:
  std::vector<float> attend(const ia_tensor& q, const ia_tensor& k, const ia_tensor& v,
                            const ia_attention_options* options = nullptr) const {
    std::vector<float> out(kHeads * q.length * kDim);
    const ia_output to{out.data(), {0, 0}};
    ia::check(ia_attention(context_.get(), options, &q, &k, &v, &to));
    return out;
  }

  const ia::Context context_{2};
  const std::vector<float> q_ = random_floats(kHeads * kQueries * kDim, 1),
                           k_ = random_floats(kKvHeads * kKeys * kDim, 2),
                           v_ = random_floats(kKvHeads * kKeys * kDim, 3);
  const ia_tensor tq_ = tensor(q_.data(), IA_F32, kHeads, kQueries), tk_ = tensor(k_.data(), IA_F32, kKvHeads, kKeys),
                  tv_ = tensor(v_.data(), IA_F32, kKvHeads, kKeys);
};

TEST_F(CApiTensors, ElementTypesThatHoldTheValuesGiveTheSameBits) {
  const std::vector<float> expected = attend(tq_, tk_, tv_);
  std::vector<uint16_t> k16, v16;
  std::vector<int8_t> k8;
  for (const float x : k_) {
    k8.push_back(static_cast<int8_t>(x * 64.0f));
    k16.push_back(f32_to_f16(x));
  }
  for (const float x : v_) {  // 7 bits of a multiple of 2^-6: exact in bfloat16
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    v16.push_back(static_cast<uint16_t>(bits >> 16));
  }
  const ia_tensor tk16 = tensor(k16.data(), IA_F16, kKvHeads, kKeys);
  const ia_tensor tv16 = tensor(v16.data(), IA_BF16, kKvHeads, kKeys);
  EXPECT_EQ(expected, attend(tq_, tk16, tv16));
  ia_tensor tk8 = tensor(k8.data(), IA_S8, kKvHeads, kKeys);
  const float one = 0x1p-6f;
  tk8.scale = &one;
  EXPECT_EQ(expected, attend(tq_, tk8, tv_));
  std::vector<float> scales(kKvHeads * kKeys, one);  // the same, one by one and transposed
  tk8.scale = scales.data();
  tk8.scale_strides[0] = sizeof(float);
  tk8.scale_strides[1] = kKvHeads * sizeof(float);
  EXPECT_EQ(expected, attend(tq_, tk8, tv_));
}

TEST_F(CApiTensors, StridesAreFollowed) {
  const std::vector<float> expected = attend(tq_, tk_, tv_);
  // k as [length][heads][head_dim], v reversed along the channels with a hole behind each
  std::vector<float> k(k_.size()), v(2 * v_.size(), 1e30f);
  for (size_t h = 0; h < kKvHeads; ++h)
    for (size_t t = 0; t < kKeys; ++t)
      for (size_t c = 0; c < kDim; ++c) {
        k[(t * kKvHeads + h) * kDim + c] = k_[(h * kKeys + t) * kDim + c];
        v[2 * ((h * kKeys + t) * kDim + kDim - 1 - c)] = v_[(h * kKeys + t) * kDim + c];
      }
  ia_tensor tk = tensor(k.data(), IA_F32, kKvHeads, kKeys), tv = tensor(&v[2 * (kDim - 1)], IA_F32, kKvHeads, kKeys);
  tk.strides[0] = kDim * 4;
  tk.strides[1] = kKvHeads * kDim * 4;
  tk.strides[2] = 4;
  tv.strides[0] = kKeys * kDim * 8;
  tv.strides[1] = kDim * 8;
  tv.strides[2] = -8;
  EXPECT_EQ(expected, attend(tq_, tk, tv));
  // out as [token][head][d + 3], the gap untouched
  std::vector<float> out(kQueries * kHeads * (kDim + 3), 7.0f);
  const ia_output to{out.data(), {(kDim + 3) * 4, kHeads * (kDim + 3) * 4}};
  ASSERT_EQ(IA_OK, ia_attention(context_.get(), nullptr, &tq_, &tk_, &tv_, &to)) << ia_last_error();
  for (size_t h = 0; h < kHeads; ++h)
    for (size_t t = 0; t < kQueries; ++t)
      for (size_t c = 0; c < kDim + 3; ++c) {
        const float got = out[(t * kHeads + h) * (kDim + 3) + c];
        ASSERT_EQ(c < kDim ? expected[(h * kQueries + t) * kDim + c] : 7.0f, got) << h << " " << t << " " << c;
      }
}

TEST_F(CApiTensors, ACacheFilledInPiecesEqualsOneCall) {
  ia_attention_options causal{};
  causal.struct_size = sizeof causal;
  causal.causal = 1;
  const std::vector<float> expected = attend(tq_, tk_, tv_, &causal);
  ia::Cache cache(context_, 2, kKvHeads, kDim, kKeys);
  for (const size_t layer : {1, 0})
    for (size_t start = 0; start < kKeys; start += 70) {
      const size_t count = std::min<size_t>(70, kKeys - start);
      const auto part = [&](const std::vector<float>& x) {
        ia_tensor t = tensor(x.data() + start * kDim, IA_F32, kKvHeads, count);
        t.strides[0] = kKeys * kDim * 4;
        t.strides[1] = kDim * 4;
        t.strides[2] = 4;
        return t;
      };
      cache.append(layer, part(k_), part(v_));
      EXPECT_EQ(layer == 1 ? 0 : start + count, cache.length());
    }
  std::vector<float> out(expected.size());
  const ia_output to{out.data(), {0, 0}};
  cache.attention(1, causal, tq_, to);
  EXPECT_EQ(expected, out);
  ia::Cache fork = cache.fork();
  cache.truncate(100);
  fork.attention(0, causal, tq_, to);
  EXPECT_EQ(expected, out);
  EXPECT_EQ(IA_CONTEXT_OVERFLOW, ia_cache_append(fork.get(), 0, &tk_, &tv_));
  EXPECT_EQ(kKeys, fork.length());
  EXPECT_EQ(IA_INVALID_ARGUMENT, ia_cache_append(fork.get(), 2, &tk_, &tv_));
}

TEST_F(CApiTensors, BadTensorsAreRefused) {
  std::vector<float> out(q_.size());
  const auto run = [&](const ia_tensor& q, const ia_tensor& k, const ia_tensor& v, ia_output to) {
    return ia_attention(context_.get(), nullptr, &q, &k, &v, &to);
  };
  const auto with = [](ia_tensor t, auto change) {
    change(t);
    return t;
  };
  const ia_output to{out.data(), {0, 0}};
  EXPECT_EQ(IA_OK, run(tq_, tk_, tv_, to));
  const ia_tensor bad[] = {
      with(tk_, [](ia_tensor& t) { t.data = nullptr; }),     with(tk_, [](ia_tensor& t) { t.heads = 3; }),
      with(tk_, [](ia_tensor& t) { t.heads = 0; }),          with(tk_, [](ia_tensor& t) { t.length = 299; }),
      with(tk_, [](ia_tensor& t) { t.length = SIZE_MAX; }),  with(tk_, [](ia_tensor& t) { t.head_dim = 16; }),
      with(tk_, [](ia_tensor& t) { t.head_dim = 1 << 20; }), with(tk_, [](ia_tensor& t) { t.dtype = 4; }),
      with(tk_, [](ia_tensor& t) { t.dtype = IA_S8; })};
  for (const ia_tensor& k : bad) EXPECT_EQ(IA_INVALID_ARGUMENT, run(tq_, k, tv_, to)) << &k - bad;
  std::vector<float> v = v_;
  v[777] = std::nanf("");
  EXPECT_EQ(IA_INVALID_ARGUMENT, run(tq_, tk_, tensor(v.data(), IA_F32, kKvHeads, kKeys), to));
  EXPECT_NE(nullptr, std::strstr(ia_last_error(), "v holds NaN or Inf (head vector 24)")) << ia_last_error();
  EXPECT_EQ(IA_INVALID_ARGUMENT, run(tq_, tk_, tv_, {nullptr, {0, 0}}));
  EXPECT_EQ(IA_INVALID_ARGUMENT, run(tq_, tk_, tv_, {out.data(), {kDim * 4, kDim * 4 + 2}}));
}

TEST_F(CApiTensors, LinearsOfBothOriginsAgree) {
  constexpr size_t kOut = 20, kIn = 64, kRows = 3;
  const std::vector<float> w = random_floats(kOut * kIn, 4), x = random_floats(kRows * kIn, 5);
  for (const ia_weight_format format : {IA_W4G32, IA_W4G32A, IA_W8G32}) {
    std::vector<float> y(kRows * kOut), expected(kRows * kOut);
    const ia::Linear linear(context_, format, kOut, kIn, w.data());
    linear.run(kRows, x.data(), expected.data());
    std::vector<uint8_t> q(kOut * kIn);
    std::vector<uint16_t> scale(kOut * kIn / 32), min(scale.size());
    const bool has_min = format == IA_W4G32A;
    quantize_weights(static_cast<WeightFormat>(format), kOut, kIn, w.data(), nullptr,
                     {q.data(), scale.data(), has_min ? min.data() : nullptr});
    ia_linear* packed = nullptr;
    ASSERT_EQ(IA_OK, ia_linear_pack(context_.get(), format, kOut, kIn, q.data(), scale.data(),
                                    has_min ? min.data() : nullptr, &packed));
    ASSERT_EQ(IA_OK, ia_linear_run(packed, kRows, x.data(), y.data()));
    ia_linear_destroy(&packed);
    EXPECT_EQ(expected, y);
    double error = 0, size = 0;  // against floats: 4-bit weights stay within a tenth
    for (size_t r = 0; r < kRows; ++r)
      for (size_t n = 0; n < kOut; ++n) {
        double exact = 0;
        for (size_t c = 0; c < kIn; ++c) exact += static_cast<double>(x[r * kIn + c]) * w[n * kIn + c];
        error += std::fabs(exact - y[r * kOut + n]);
        size += std::fabs(exact);
      }
    EXPECT_LT(error / size, format == IA_W8G32 ? 0.02 : 0.12);
  }
}

}  // namespace
}  // namespace intattention::testing
