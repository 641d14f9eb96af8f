// gemv_wxa8, gemv_swiglu and gemm_wxa8: the same float bits as the oracle.
#include "cuda_test.h"

namespace intattention::cuda {
namespace {

struct RandomLinear {
  LinearReference reference;
  std::shared_ptr<const PackedWeights> packed;
};

// The residual stream, the norm's weights, and what a GEMV that computes the norm itself must make of them.
struct NormCase {
  DeviceBuffer hidden, add, weight, out;
  std::vector<float> sum;
  Quantized x;

  NormedRow row() const { return {hidden.as<float>(), add.as<float>(), weight.as<float>(), 1e-5f, out.as<float>()}; }
};

class LinearCuda : public CudaTest {
 protected:
  NormCase make_norm(size_t k, bool has_add) {
    std::vector<float> hidden = random_floats(k, -2.0f, 2.0f);
    const std::vector<float> add = random_floats(k, -1.0f, 1.0f), weight = random_floats(k, 0.5f, 1.5f);
    NormCase c{
        DeviceBuffer::of(hidden), DeviceBuffer(), DeviceBuffer::of(weight), DeviceBuffer(k * sizeof(float)), {}, {}};
    if (has_add) {
      c.add = DeviceBuffer::of(add);
      for (size_t i = 0; i < k; ++i) hidden[i] = hidden[i] + add[i];
    }
    c.sum = hidden;
    c.x = quantize_activations_reference(rmsnorm_reference(hidden, weight, 1e-5f));
    return c;
  }

  enum class Quants { kRandom, kLowest, kHighest };

  RandomLinear make(WeightFormat format, size_t n, size_t k, Quants quants = Quants::kRandom) {
    const bool w8 = format == WeightFormat::kW8G32, has_min = format == WeightFormat::kW4G32A;
    const int low = w8 ? -128 : 0, high = w8 ? 127 : 15;
    RandomLinear out{{n, k, w8 || has_min ? 0 : 8, random_ints<int>(n * k, low, high), {}, {}}, nullptr};
    if (quants != Quants::kRandom) out.reference.q.assign(n * k, quants == Quants::kLowest ? low : high);
    std::vector<uint16_t> scale, min;
    for (size_t i = 0; i < n * k / 32; ++i) {
      scale.push_back(static_cast<uint16_t>(random_int(0, 1) << 15 | random_int(0, 15) << 10 | random_int(0, 1023)));
      min.push_back(static_cast<uint16_t>(random_int(0, 1) << 15 | random_int(0, 15) << 10 | random_int(0, 1023)));
      out.reference.d.push_back(f16_reference(scale.back()));
      if (has_min) out.reference.mn.push_back(f16_reference(min.back()));
    }
    std::vector<uint8_t> q;
    for (size_t g = 0; g < n * k / 32; ++g)
      for (size_t j = 0; j < (w8 ? 32 : 16); ++j) {
        const int first = out.reference.q[g * 32 + j];
        q.push_back(static_cast<uint8_t>(w8 ? first : first | out.reference.q[g * 32 + 16 + j] << 4));
      }
    const LogicalWeights logical{format, n, k, q.data(), scale.data(), has_min ? min.data() : nullptr};
    out.packed = std::make_shared<PackedWeights>(pack_weights(logical));
    return out;
  }

  using Kernel = void (*)(const WeightView&, uint32_t, const DeviceRows&, float*, uint32_t, cudaStream_t);

  static void gemv(const WeightView& w, uint32_t tokens, const DeviceRows& x, float* y, uint32_t ldy,
                   cudaStream_t stream) {
    static const GemvScratch scratch;  // one for all: a launch must leave it as it found it
    gemv_wxa8(w, tokens, x, y, ldy, scratch, stream);
  }

  void check_kernel(Kernel kernel, WeightFormat format, size_t tokens, size_t n, size_t k,
                    Quants quants = Quants::kRandom) {
    SCOPED_TRACE(::testing::Message() << weight_format_name(format) << " tokens " << tokens << " n " << n << " k "
                                      << k);
    const RandomLinear linear = make(format, n, k, quants);
    std::vector<float> values = random_floats(tokens * k, -3.0f, 3.0f);
    if (quants != Quants::kRandom) values.assign(tokens * k, quants == Quants::kLowest ? 2.0f : -2.0f);
    const Quantized x = quantize_activations_reference(values);
    const RowsOnDevice rows(x);
    const DeviceWeights weights({linear.packed}, false);
    const size_t ldy = n + 3;
    const std::vector<float> poison(tokens * ldy, -7.0f);
    const DeviceBuffer y = DeviceBuffer::of(poison);
    kernel(weights.view(), static_cast<uint32_t>(tokens), rows.rows(), y.as<float>(), static_cast<uint32_t>(ldy),
           nullptr);
    synchronize();
    std::vector<float> expected = poison;
    for (size_t t = 0; t < tokens; ++t)
      for (size_t j = 0; j < n; ++j) expected[t * ldy + j] = linear.reference(x, t, j);
    expect_bits(download(y, poison.size()), expected);
  }

  static constexpr WeightFormat kFormats[] = {WeightFormat::kW4G32, WeightFormat::kW4G32A, WeightFormat::kW8G32};
};

TEST_F(LinearCuda, GemvGrid) {
  for (WeightFormat format : kFormats)
    for (size_t tokens : {1, 2, 3, 5, 8})
      for (size_t n : {1, 31, 33, 100})
        for (size_t k : {32, 128, 160, 896, 1536}) {
          check_kernel(gemv, format, tokens, n, k);
          if (HasFatalFailure()) return;
        }
}

TEST_F(LinearCuda, GemvDeepAndWide) {
  for (WeightFormat format : kFormats) {
    for (size_t k : {3584, 8960, 18944})
      for (size_t tokens : {1, 8}) check_kernel(gemv, format, tokens, 65, k);
    for (size_t tokens : {1, 3}) {
      check_kernel(gemv, format, tokens, 20000, 160);  // more tiles than blocks: tiles are shared
      check_kernel(gemv, format, tokens, 4608, 896);
      check_kernel(gemv, format, tokens, 3584, 416);  // fewer: blocks have less than 32 rows
      check_kernel(gemv, format, tokens, 1000, 416);
    }
    if (HasFatalFailure()) return;
  }
}

TEST_F(LinearCuda, GemmGrid) {
  for (WeightFormat format : kFormats)
    for (size_t tokens : {1, 9, 64, 65, 130})
      for (size_t n : {1, 40, 128, 200})
        for (size_t k : {32, 160, 896}) {
          check_kernel(gemm_wxa8, format, tokens, n, k);
          if (HasFatalFailure()) return;
        }
  for (WeightFormat format : kFormats) check_kernel(gemm_wxa8, format, 33, 72, 18944);
}

TEST_F(LinearCuda, ExtremeQuants) {
  for (WeightFormat format : kFormats)
    for (Quants quants : {Quants::kLowest, Quants::kHighest}) {
      check_kernel(gemv, format, 1, 40, 3584, quants);
      check_kernel(gemm_wxa8, format, 9, 40, 3584, quants);
    }
}

TEST_F(LinearCuda, SwigluInOne) {
  const size_t k = 320;
  const GemvScratch scratch;
  for (size_t n : {96, 4864})  // few units; more than there are blocks, so that units are shared
    for (WeightFormat format : kFormats)
      for (size_t tokens : {1, 3, 8}) {
        if (n > 1000 && tokens > 3) continue;
        SCOPED_TRACE(::testing::Message() << weight_format_name(format) << " tokens " << tokens << " n " << n);
        const RandomLinear gate = make(format, n, k), up = make(format, n, k);
        const Quantized x = quantize_activations_reference(random_floats(tokens * k, -2.0f, 2.0f));
        const RowsOnDevice rows(x), act(tokens * n);
        const DeviceWeights weights({gate.packed, up.packed}, true);
        gemv_swiglu(weights.view(), static_cast<uint32_t>(tokens), rows.rows(), act.rows(), scratch, nullptr);
        synchronize();
        std::vector<float> y;
        for (size_t t = 0; t < tokens; ++t)
          for (size_t j = 0; j < n; ++j) y.push_back(swiglu_reference(gate.reference(x, t, j), up.reference(x, t, j)));
        act.expect(quantize_activations_reference(y));
        if (HasFailure()) return;
      }
}

TEST_F(LinearCuda, NormInGemv) {
  const GemvScratch scratch;
  for (WeightFormat format : kFormats)
    for (size_t k : {32, 64, 576, 3584, 4576})
      for (size_t n : {33, 4800}) {
        SCOPED_TRACE(::testing::Message() << weight_format_name(format) << " n " << n << " k " << k);
        const NormCase norm = make_norm(k, n == 33);
        const RandomLinear linear = make(format, n, k);
        const DeviceWeights weights({linear.packed}, false);
        const DeviceBuffer y(n * sizeof(float));
        gemv_wxa8(weights.view(), norm.row(), y.as<float>(), scratch, nullptr);
        synchronize();
        std::vector<float> expected;
        for (size_t j = 0; j < n; ++j) expected.push_back(linear.reference(norm.x, 0, j));
        expect_bits(download(y, n), expected);
        if (n == 33) expect_bits(download(norm.out, k), norm.sum);
        if (HasFailure()) return;
      }
}

TEST_F(LinearCuda, NormInSwiglu) {
  const GemvScratch scratch;
  for (WeightFormat format : kFormats)
    for (size_t n : {96, 9728}) {
      SCOPED_TRACE(::testing::Message() << weight_format_name(format) << " n " << n);
      const size_t k = 320;
      const NormCase norm = make_norm(k, true);
      const RandomLinear gate = make(format, n, k), up = make(format, n, k);
      const DeviceWeights weights({gate.packed, up.packed}, true);
      const RowsOnDevice act(n);
      gemv_swiglu(weights.view(), norm.row(), act.rows(), scratch, nullptr);
      synchronize();
      std::vector<float> y;
      for (size_t j = 0; j < n; ++j)
        y.push_back(swiglu_reference(gate.reference(norm.x, 0, j), up.reference(norm.x, 0, j)));
      act.expect(quantize_activations_reference(y));
      expect_bits(download(norm.out, k), norm.sum);
      if (HasFailure()) return;
    }
}

TEST_F(LinearCuda, NormTooLong) {
  const size_t k = kMaxNormedRow + 32;
  const NormCase norm = make_norm(k, false);
  const RandomLinear linear = make(WeightFormat::kW4G32, 8, k);
  const DeviceWeights weights({linear.packed}, false);
  const DeviceBuffer y(8 * sizeof(float));
  EXPECT_THROW(gemv_wxa8(weights.view(), norm.row(), y.as<float>(), GemvScratch(), nullptr), CudaError);
}

TEST_F(LinearCuda, PartsOfOneMatrix) {
  const size_t k = 96;
  const RandomLinear a = make(WeightFormat::kW4G32, 48, k), b = make(WeightFormat::kW4G32, 16, k),
                     c = make(WeightFormat::kW8G32, 40, k);
  const DeviceLinear linear(LinearW4A8({a.packed, b.packed, c.packed}));
  ASSERT_EQ(linear.segments.size(), 2u);
  const Quantized x = quantize_activations_reference(random_floats(k, -2.0f, 2.0f));
  const RowsOnDevice rows(x);
  const DeviceBuffer y(104 * sizeof(float));
  for (const auto& s : linear.segments) gemv(s.weights.view(), 1, rows.rows(), y.as<float>() + s.column, 104, nullptr);
  synchronize();
  std::vector<float> expected;
  for (const RandomLinear* part : {&a, &b, &c})
    for (size_t j = 0; j < part->reference.n; ++j) expected.push_back(part->reference(x, 0, j));
  expect_bits(download(y, 104), expected);
}

}  // namespace
}  // namespace intattention::cuda
