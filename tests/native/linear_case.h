// Random linears for the gemm_w4a8 and gemm_w8a8 checks: logical weights, the same weights as numbers for
// the oracle, quantised activations, and the comparison.
#pragma once

#include <vector>

#include "guarded_buffer.h"
#include "kernel_test.h"
#include "packing.h"
#include "reference.h"

namespace intattention::testing {

class LinearTest : public KernelTest {
 protected:
  enum class Quants { kRandom, kLowest, kHighest };

  static int lowest(WeightFormat format) { return format == WeightFormat::kW8G32 ? -128 : 0; }
  static int highest(WeightFormat format) { return format == WeightFormat::kW8G32 ? 127 : 15; }

  // Any finite f16: both signs, subnormals and zero included.
  std::vector<uint16_t> random_f16(size_t count) {
    std::vector<uint16_t> bits(count);
    for (uint16_t& value : bits) {
      const int exponent = random_int(0, 3) == 0 ? random_int(0, 30) : random_int(5, 15);
      value = static_cast<uint16_t>(random_int(0, 1) << 15 | exponent << 10 | random_int(0, 1023));
    }
    return bits;
  }

  void check(WeightFormat format, size_t m, size_t n, size_t k, Quants quants = Quants::kRandom) {
    SCOPED_TRACE(::testing::Message() << weight_format_name(format) << " m " << m << " n " << n << " k " << k);
    const size_t groups = k / 32;
    const bool w8 = format == WeightFormat::kW8G32, has_min = format == WeightFormat::kW4G32A;

    LinearReference linear{n, k, w8 || has_min ? 0 : 8, std::vector<int>(n * k), {}, {}};
    for (int& q : linear.q)
      q = quants == Quants::kLowest    ? lowest(format)
          : quants == Quants::kHighest ? highest(format)
                                       : random_int(lowest(format), highest(format));
    const std::vector<uint16_t> scale = random_f16(n * groups), min = random_f16(n * groups);
    for (size_t i = 0; i < n * groups; ++i) {
      linear.d.push_back(f16_reference(scale[i]));
      if (has_min) linear.mn.push_back(f16_reference(min[i]));
    }
    const std::vector<uint8_t> q = logical_quants(linear, w8);
    const PackedWeights packed = pack_weights({format, n, k, q.data(), scale.data(), has_min ? min.data() : nullptr});
    GuardedBuffer<uint8_t> weights(std::vector<uint8_t>(packed.data.data(), packed.data.data() + packed.data.size()));

    std::vector<float> activations = random_floats(m * k, -3.0f, 3.0f);
    if (quants != Quants::kRandom) activations.assign(m * k, quants == Quants::kLowest ? 2.0f : -2.0f);
    const Quantized x = quantize_activations_reference(activations);
    GuardedBuffer<int8_t> xq(x.q);
    GuardedBuffer<float> xs(x.scale);
    GuardedBuffer<int32_t> xsum(x.sum);
    const QuantizedRows rows{xq.data(), xs.data(), xsum.data()};

    const size_t ldy = n + 3;
    GuardedBuffer<float> y((m - 1) * ldy + n);
    const float untouched = y[0];
    if (w8)
      table().gemm_w8a8(m, n, k, &rows, weights.data(), y.data(), ldy);
    else
      table().gemm_w4a8(m, n, k, &rows, weights.data(), has_min, y.data(), ldy);
    for (size_t i = 0; i < m; ++i)
      for (size_t j = 0; j < (i + 1 < m ? ldy : n); ++j) {
        const float expected = j < n ? linear(x, i, j) : untouched;
        ASSERT_EQ(bits_of(y[i * ldy + j]), bits_of(expected))
            << "row " << i << " column " << j << ": " << y[i * ldy + j] << " for " << expected;
      }
    EXPECT_TRUE(y.intact());
  }

  void check_grid(WeightFormat format) {
    for (size_t m = 1; m <= 13; ++m)
      for (size_t n : {1, 7, 8, 9, 15, 16, 17, 40})
        for (size_t k : {32, 64, 96, 576}) {
          check(format, m, n, k);
          if (HasFatalFailure()) return;
        }
  }

  // Depths around the panels of activations that kernels prepare: 32 groups (i8mm) and 512 / rows.
  void check_panel_edges(WeightFormat format) {
    for (size_t m : {8, 9, 13})
      for (size_t k : {992, 1024, 1056, 2016, 2048, 2080, 2720, 2752, 4128}) check(format, m, 17, k);
    for (size_t k : {8192, 8224, 16384, 16416})
      for (size_t m : {1, 2}) check(format, m, 9, k);
  }

 private:
  // packing.h: w4 [n][k/32][16], byte j = element j low, j + 16 high; w8 s8 [n][k].
  static std::vector<uint8_t> logical_quants(const LinearReference& linear, bool w8) {
    std::vector<uint8_t> q;
    if (w8) {
      for (int value : linear.q) q.push_back(static_cast<uint8_t>(value));
      return q;
    }
    for (size_t group = 0; group < linear.n * linear.k / 32; ++group)
      for (size_t j = 0; j < 16; ++j)
        q.push_back(static_cast<uint8_t>(linear.q[group * 32 + j] | linear.q[group * 32 + 16 + j] << 4));
    return q;
  }
};

}  // namespace intattention::testing
