// The fixture of every CUDA check, and what the checks share.
#pragma once

#include "available.h"
#include "kernel_test.h"
#include "kernels.h"
#include "reference.h"

namespace intattention::cuda {

using namespace intattention::testing;

class CudaTest : public ::testing::Test, protected Random {
 protected:
  void SetUp() override {
    const std::string reason = why_unavailable();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
  static void synchronize() { check(cudaDeviceSynchronize(), "the kernel under test"); }
};

// Activations on the device.
struct RowsOnDevice {
  DeviceBuffer q, scale, sum;

  explicit RowsOnDevice(const Quantized& x)
      : q(DeviceBuffer::of(x.q)), scale(DeviceBuffer::of(x.scale)), sum(DeviceBuffer::of(x.sum)) {}
  explicit RowsOnDevice(size_t values) : q(values), scale(values / 32 * 4), sum(values / 32 * 4) {}
  DeviceRows rows() const { return {q.as<int8_t>(), scale.as<float>(), sum.as<int32_t>()}; }

  void expect(const Quantized& expected) const {
    std::vector<int8_t> got_q(expected.q.size());
    std::vector<float> got_scale(expected.scale.size());
    std::vector<int32_t> got_sum(expected.sum.size());
    q.download(got_q.data(), got_q.size());
    scale.download(got_scale.data(), got_scale.size());
    sum.download(got_sum.data(), got_sum.size());
    EXPECT_EQ(got_q, expected.q);
    EXPECT_EQ(got_sum, expected.sum);
    for (size_t i = 0; i < got_scale.size(); ++i)
      ASSERT_TRUE(same_float(got_scale[i], expected.scale[i]))
          << "scale " << i << ": " << got_scale[i] << " for " << expected.scale[i];
  }
};

inline std::vector<float> download(const DeviceBuffer& buffer, size_t count) {
  std::vector<float> values(count);
  buffer.download(values.data(), count);
  return values;
}

inline void expect_bits(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(same_float(got[i], expected[i])) << "element " << i << ": " << got[i] << " for " << expected[i];
}

}  // namespace intattention::cuda
