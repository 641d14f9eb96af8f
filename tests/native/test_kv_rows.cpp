// Rows leave a cache and enter another one as they were, over block borders; values no cache holds are refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "error.h"
#include "kv_rows.h"

namespace intattention {
namespace {

constexpr size_t kLayers = 2, kHeads = 3, kDim = 32;

struct Rows {
  std::vector<int8_t> k, v;
  std::vector<float> k_scale;
  std::vector<int16_t> v_log_scale;
  explicit Rows(size_t count)
      : k(kHeads * count * kDim), v(k.size()), k_scale(kHeads * count), v_log_scale(kHeads * count) {}
  LayerRows view() const { return {k.data(), k_scale.data(), v.data(), v_log_scale.data()}; }
};

std::vector<Rows> some_rows(size_t count) {
  std::vector<Rows> layers;
  for (size_t layer = 0; layer < kLayers; ++layer) {
    Rows rows(count);
    for (size_t i = 0; i < rows.k.size(); ++i) {
      rows.k[i] = static_cast<int8_t>((i * 37 + layer) % 255);
      if (rows.k[i] == -128) rows.k[i] = 127;
      rows.v[i] = static_cast<int8_t>(-rows.k[i]);
    }
    for (size_t i = 0; i < rows.k_scale.size(); ++i) {
      rows.k_scale[i] = static_cast<float>(i + layer);
      rows.v_log_scale[i] = static_cast<int16_t>(i % 700);
    }
    layers.push_back(std::move(rows));
  }
  return layers;
}

std::vector<LayerRows> views(const std::vector<Rows>& layers) {
  std::vector<LayerRows> out;
  for (const Rows& rows : layers) out.push_back(rows.view());
  return out;
}

TEST(KVRows, ComeBackAsTheyWere) {
  for (size_t count : {1u, 255u, 256u, 257u, 600u}) {
    const std::vector<Rows> layers = some_rows(count);
    KVCache cache(kLayers, kHeads, kDim, 1000);
    append_rows(cache, views(layers), count);
    ASSERT_EQ(cache.length(), count);
    for (size_t layer = 0; layer < kLayers; ++layer) {
      Rows got(count);
      read_rows(cache, layer, count, got.k.data(), got.k_scale.data(), got.v.data(), got.v_log_scale.data());
      EXPECT_EQ(got.k, layers[layer].k);
      EXPECT_EQ(got.v, layers[layer].v);
      EXPECT_EQ(got.k_scale, layers[layer].k_scale);
      EXPECT_EQ(got.v_log_scale, layers[layer].v_log_scale);
    }
  }
}

TEST(KVRows, RefusedRowsLeaveTheCacheAsItWas) {
  KVCache cache(kLayers, kHeads, kDim, 300);
  append_rows(cache, views(some_rows(10)), 10);
  const auto refused = [&](auto change) {
    std::vector<Rows> layers = some_rows(20);
    change(layers[1]);
    EXPECT_THROW(append_rows(cache, views(layers), 20), InvalidArgument);
    EXPECT_EQ(cache.length(), 10u);
  };
  refused([](Rows& rows) { rows.k.back() = -128; });
  refused([](Rows& rows) { rows.v.front() = -128; });
  refused([](Rows& rows) { rows.k_scale[3] = NAN; });
  refused([](Rows& rows) { rows.k_scale[3] = INFINITY; });
  refused([](Rows& rows) { rows.k_scale[3] = -0.5f; });
  refused([](Rows& rows) { rows.v_log_scale[3] = -32768; });
  refused([](Rows& rows) { rows.v_log_scale[3] = 32767; });
  EXPECT_THROW(append_rows(cache, {}, 1), InvalidArgument);
  EXPECT_THROW(append_rows(cache, views(some_rows(291)), 291), ContextOverflow);
  EXPECT_EQ(cache.length(), 10u);
  EXPECT_EQ(cache.nbytes(), cache.bytes_for(10));
}

}  // namespace
}  // namespace intattention
