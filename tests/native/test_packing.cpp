// The packed layouts against the addressing formulas of packing.h.
#include <cstring>

#include "dispatch.h"
#include "error.h"
#include "kernel_test.h"
#include "linear.h"
#include "packing.h"
#include "reference.h"

namespace intattention::testing {
namespace {

TEST(PackB8, FollowsTheFormula) {
  for (uint32_t inner : {4u, 8u})
    for (size_t n : {1, 7, 8, 9, 24})
      for (size_t k : {inner, 16u, 80u, 256u}) {
        const size_t stride = 8 * k + 16, tiles = (n + 7) / 8;
        const B8Layout layout{inner, stride};
        std::vector<int8_t> b(n * k);
        for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<int8_t>(i * 37 + i / 251 + 1);
        ASSERT_EQ(pack_b8_bytes(n, layout), tiles * stride);
        std::vector<int8_t> packed(tiles * stride, 99);
        pack_b8(n, k, b.data(), k, layout, packed.data());
        for (size_t row = 0; row < tiles * 8; ++row)
          for (size_t col = 0; col < k; ++col) {
            const size_t at = (row / 8) * stride + (col / inner) * 8 * inner + (row % 8) * inner + col % inner;
            ASSERT_EQ(int{packed[at]}, row < n ? int{b[row * k + col]} : 0) << row << ", " << col;
          }
      }
}

TEST(PackWeights, FollowsTheFormula) {
  constexpr size_t kN = 11, kK = 96, kGroups = kK / 32;
  for (WeightFormat format : {WeightFormat::kW4G32, WeightFormat::kW4G32A, WeightFormat::kW8G32}) {
    SCOPED_TRACE(weight_format_name(format));
    const bool w8 = format == WeightFormat::kW8G32, has_min = format == WeightFormat::kW4G32A;
    std::vector<uint8_t> q(kN * kK / (w8 ? 1 : 2));
    std::vector<uint16_t> scale(kN * kGroups), min(kN * kGroups);
    for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<uint8_t>(i * 73 + i / 256);
    for (size_t i = 0; i < scale.size(); ++i) {
      scale[i] = static_cast<uint16_t>(0x2000 + i);
      min[i] = static_cast<uint16_t>(0xA800 + i);
    }
    const PackedWeights packed = pack_weights({format, kN, kK, q.data(), scale.data(), has_min ? min.data() : nullptr});
    const size_t head = has_min ? 32 : 16, group_bytes = head + (w8 ? 256 : 128);
    ASSERT_EQ(packed_group_bytes(format), group_bytes);
    ASSERT_EQ(packed.data.size(), 2 * kGroups * group_bytes);
    for (size_t row = 0; row < kN; ++row) {
      std::vector<float> dequantized(kK);
      dequantize_packed_row(packed, row, dequantized.data());
      for (size_t k = 0; k < kK; ++k) {
        const size_t g = k / 32, in_group = k % 32, r = row % 8;
        const uint8_t* group = packed.data.data() + (row / 8 * kGroups + g) * group_bytes;
        uint16_t d_bits, mn_bits;
        std::memcpy(&d_bits, group + 2 * r, 2);
        std::memcpy(&mn_bits, group + 16 + 2 * r, 2);
        ASSERT_EQ(d_bits, scale[row * kGroups + g]);
        if (has_min) {
          ASSERT_EQ(mn_bits, min[row * kGroups + g]);
        }

        int value, expected;
        if (w8) {
          value = static_cast<int8_t>(group[head + in_group / 4 * 32 + r * 4 + in_group % 4]);
          expected = static_cast<int8_t>(q[row * kK + k]);
        } else {
          const size_t low = in_group % 16;
          const uint8_t byte = group[head + low / 4 * 32 + r * 4 + low % 4];
          value = in_group < 16 ? byte & 15 : byte >> 4;
          const uint8_t logical = q[(row * kGroups + g) * 16 + low];
          expected = in_group < 16 ? logical & 15 : logical >> 4;
        }
        ASSERT_EQ(value, expected) << row << ", " << k;
        const float d = f16_reference(d_bits);
        const float mn = w8 ? 0.0f : has_min ? f16_reference(mn_bits) : -8.0f * d;
        ASSERT_EQ(dequantized[k], d * static_cast<float>(expected) + mn) << row << ", " << k;
      }
    }
  }
}

TEST(BorrowPackedWeights, GivesTheSameOutputAndKeepsTheOwner) {
  constexpr size_t kN = 20, kK = 64;
  std::vector<uint8_t> q(kN * kK);
  std::vector<uint16_t> scale(kN * kK / 32, 0x2c00);
  for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<uint8_t>(i * 73 + i / 256);
  const auto owned = std::make_shared<const PackedWeights>(
      pack_weights({WeightFormat::kW8G32, kN, kK, q.data(), scale.data(), nullptr}));
  const auto bytes = std::make_shared<AlignedBuffer>(owned->data.size());
  std::memcpy(bytes->data(), owned->data.data(), owned->data.size());
  const auto borrow = [&](size_t shift, size_t size) {
    return borrow_packed_weights(WeightFormat::kW8G32, kN, kK, SharedBytes(bytes->data() + shift, size, bytes));
  };
  {
    const auto borrowed = std::make_shared<const PackedWeights>(borrow(0, bytes->size()));
    EXPECT_EQ(borrowed->data.data(), bytes->data());
    EXPECT_EQ(bytes.use_count(), 2);
    std::vector<float> x(kK), expected(kN), y(kN);
    for (size_t k = 0; k < kK; ++k) x[k] = static_cast<float>(k % 7) - 2.5f;
    Activations activations(1, kK);
    ASSERT_TRUE(activations.quantize_row(active_table(), 0, x.data()));
    ThreadPool pool(1, {});
    LinearW4A8({owned}).forward(pool, 1, activations, 0, expected.data());
    LinearW4A8({borrowed}).forward(pool, 1, activations, 0, y.data());
    EXPECT_EQ(y, expected);
  }
  EXPECT_EQ(bytes.use_count(), 1);
  EXPECT_THROW(borrow(0, bytes->size() - 1), InvalidArgument);
  EXPECT_THROW(borrow(16, bytes->size()), InvalidArgument);
  EXPECT_THROW(packed_weights_bytes(WeightFormat::kW8G32, size_t{1} << 40, 32), InvalidArgument);
}

TEST(F16, EveryFiniteValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7c00) == 0x7c00) continue;
    const uint16_t half = static_cast<uint16_t>(bits);
    ASSERT_EQ(bits_of(f16_to_f32(half)), bits_of(f16_reference(half))) << bits;
  }
}

}  // namespace
}  // namespace intattention::testing
