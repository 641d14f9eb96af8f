// Embedding, norm, SwiGLU, quantiser and argmax against the oracle.
#include <limits>

#include "cuda_test.h"
#include "random_decoder.h"

namespace intattention::cuda {
namespace {

class RowsCuda : public CudaTest {};

TEST_F(RowsCuda, Quantise) {
  std::vector<float> x = random_floats(8 * 96, -5.0f, 5.0f);
  for (size_t i = 0; i < 32; ++i) x[i] = 0.0f;
  for (size_t i = 32; i < 64; ++i) x[i] = i % 2 == 0 ? 1e-40f : -1e-41f;                        // subnormal
  for (size_t i = 64; i < 96; ++i) x[i] = static_cast<float>(static_cast<int>(i) - 80) + 0.5f;  // ties
  x[64] = 127.0f;
  x[100] = std::numeric_limits<float>::quiet_NaN();
  x[130] = -std::numeric_limits<float>::infinity();
  const DeviceBuffer in = DeviceBuffer::of(x);
  const RowsOnDevice out(x.size());
  quantize_rows(8, 96, in.as<float>(), out.rows(), nullptr);
  synchronize();
  out.expect(quantize_activations_reference(x));
}

TEST_F(RowsCuda, NormAndResidual) {
  for (size_t n : {64, 576, 896, 3584, 16384}) {
    const size_t tokens = 3;
    std::vector<float> hidden = random_floats(tokens * n, -2.0f, 2.0f), add = random_floats(tokens * n, -1.0f, 1.0f);
    const std::vector<float> weight = random_floats(n, 0.5f, 1.5f);
    const DeviceBuffer h = DeviceBuffer::of(hidden), a = DeviceBuffer::of(add), w = DeviceBuffer::of(weight);
    const RowsOnDevice out(tokens * n);
    norm_quantize(tokens, static_cast<uint32_t>(n), h.as<float>(), a.as<float>(), w.as<float>(), 1e-5f, out.rows(),
                  nullptr);
    synchronize();
    std::vector<float> normed;
    for (size_t t = 0; t < tokens; ++t) {
      std::vector<float> row;
      for (size_t i = 0; i < n; ++i) row.push_back(hidden[t * n + i] = hidden[t * n + i] + add[t * n + i]);
      const std::vector<float> y = rmsnorm_reference(row, weight, 1e-5f);
      normed.insert(normed.end(), y.begin(), y.end());
    }
    expect_bits(download(h, hidden.size()), hidden);
    out.expect(quantize_activations_reference(normed));
  }
}

TEST_F(RowsCuda, Swiglu) {
  const size_t tokens = 5, n = 96;
  const std::vector<float> x = random_floats(tokens * 2 * n, -90.0f, 90.0f);
  const DeviceBuffer in = DeviceBuffer::of(x);
  for (bool interleaved : {false, true}) {
    const RowsOnDevice out(tokens * n);
    swiglu_quantize(tokens, n, in.as<float>(), interleaved, out.rows(), nullptr);
    synchronize();
    std::vector<float> y;
    for (size_t t = 0; t < tokens; ++t)
      for (size_t c = 0; c < n; ++c) {
        const float* gate = &x[t * 2 * n + (interleaved ? c / 32 * 64 + c % 32 : c)];
        y.push_back(swiglu_reference(gate[0], gate[interleaved ? 32 : n]));
      }
    out.expect(quantize_activations_reference(y));
  }
}

TEST_F(RowsCuda, Embedding) {
  RandomDecoder model;
  for (WeightFormat format : {WeightFormat::kW4G32, WeightFormat::kW4G32A, WeightFormat::kW8G32}) {
    const auto weights = model.weights(format, 70, 160);
    const DeviceWeights on_device({weights}, false);
    const std::vector<int32_t> ids{0, 69, 33, 31};
    const DeviceBuffer id = DeviceBuffer::of(ids), hidden(ids.size() * 160 * sizeof(float));
    embed(on_device.view(), id.as<int32_t>(), nullptr, 4, hidden.as<float>(), nullptr);
    synchronize();
    std::vector<float> expected(ids.size() * 160);
    for (size_t t = 0; t < ids.size(); ++t)
      dequantize_packed_row(*weights, static_cast<size_t>(ids[t]), &expected[t * 160]);
    expect_bits(download(hidden, expected.size()), expected);
  }
}

TEST_F(RowsCuda, ArgmaxTakesTheFirstOfEqualOnes) {
  std::vector<float> logits = random_floats(150000, -4.0f, 4.0f);
  logits[70001] = logits[140000] = 9.0f;
  logits[149000] = 20.0f;  // beyond the limit
  const DeviceBuffer in = DeviceBuffer::of(logits), value(kArgmaxBlocks * 4), index(kArgmaxBlocks * 4);
  const DeviceBuffer state(sizeof(StepState)), ids(4 * sizeof(int32_t));
  argmax(in.as<float>(), 150000, 149000, value.as<float>(), index.as<int32_t>(), state.as<StepState>(),
         ids.as<int32_t>(), 4, nullptr);
  synchronize();
  StepState got;
  state.download(&got, 1);
  EXPECT_EQ(got.token, 70001);
  EXPECT_EQ(got.position, 1);
  EXPECT_EQ(got.bad, 0u);
  logits[3] = std::numeric_limits<float>::quiet_NaN();
  const DeviceBuffer bad = DeviceBuffer::of(logits);
  argmax(bad.as<float>(), 150000, 149000, value.as<float>(), index.as<int32_t>(), state.as<StepState>(),
         ids.as<int32_t>(), 4, nullptr);
  synchronize();
  state.download(&got, 1);
  EXPECT_EQ(got.bad, kBadLogit);
}

}  // namespace
}  // namespace intattention::cuda
