// The cache stores rows in the drawn layout, shares blocks between forks, copies on write, refuses overflow.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "dispatch.h"
#include "error.h"
#include "kv_cache.h"

namespace intattention {
namespace {

constexpr size_t kDim = 32;

// Writes a row whose bytes tell its layer, head and position.
void write_row(KVCache& cache, size_t layer, size_t head, size_t position, int salt = 0) {
  std::vector<int8_t> k(kDim), v(kDim);
  for (size_t c = 0; c < kDim; ++c) {
    k[c] = static_cast<int8_t>((position * 7 + c * 3 + layer * 11 + head * 5 + static_cast<size_t>(salt)) % 251 - 125);
    v[c] = static_cast<int8_t>(k[c] / 2);
  }
  const float k_scale = static_cast<float>(position) + 0.5f, v_scale = 2.0f;
  cache.write(layer, head, position, 1, k.data(), &k_scale, v.data(), &v_scale);
}

void append(KVCache& cache, size_t count, int salt = 0) {
  const size_t start = cache.length();
  cache.reserve(start + count);
  for (size_t p = start; p < start + count; ++p)
    for (size_t layer = 0; layer < cache.n_layers(); ++layer)
      for (size_t head = 0; head < cache.n_kv_heads(); ++head) write_row(cache, layer, head, p, salt);
  cache.set_length(start + count);
}

int8_t k_at(const KVCache& cache, size_t layer, size_t head, size_t position, size_t c) {
  const B8Layout layout{cache.inner(), kTileRows * kDim};
  return cache.block(layer, head, position / kKeyBlock).k[b8_offset(layout, position % kKeyBlock, c)];
}

int8_t v_at(const KVCache& cache, size_t layer, size_t head, size_t position, size_t c) {
  const B8Layout layout{cache.inner(), kTileRows * kKeyBlock};
  return cache.block(layer, head, position / kKeyBlock).v[b8_offset(layout, c, position % kKeyBlock)];
}

TEST(KVCache, RowsAreWhereTheLayoutSays) {
  KVCache cache(2, 3, kDim, 1000);
  append(cache, 600);
  for (size_t position : {0u, 1u, 255u, 256u, 511u, 599u})
    for (size_t layer = 0; layer < 2; ++layer)
      for (size_t head = 0; head < 3; ++head) {
        for (size_t c = 0; c < kDim; ++c) {
          const auto k = static_cast<int8_t>((position * 7 + c * 3 + layer * 11 + head * 5) % 251 - 125);
          ASSERT_EQ(k_at(cache, layer, head, position, c), k);
          ASSERT_EQ(v_at(cache, layer, head, position, c), static_cast<int8_t>(k / 2));
        }
        const KVBlock block = cache.block(layer, head, position / kKeyBlock);
        EXPECT_EQ(block.k_scale[position % kKeyBlock], static_cast<float>(position) + 0.5f);
        EXPECT_EQ(block.v_log_scale[position % kKeyBlock], 108) << "ln 2 * 1024 / 6.6";
      }
}

TEST(KVCache, RowsInBulkEqualSingleRows) {
  constexpr size_t kRows = 60;
  std::vector<int8_t> k(kRows * kDim), v(kRows * kDim);
  std::vector<float> k_scale(kRows), v_scale(kRows);
  for (size_t i = 0; i < k.size(); ++i) {
    k[i] = static_cast<int8_t>(i * 37 % 255 - 127);
    v[i] = static_cast<int8_t>(i * 91 % 255 - 127);
  }
  for (size_t i = 0; i < kRows; ++i) {
    k_scale[i] = static_cast<float>(i) + 1.0f;
    v_scale[i] = static_cast<float>(i) + 2.0f;
  }
  for (size_t start : {0u, 1u, 3u, 196u}) {
    KVCache single(1, 1, kDim, 256), bulk(1, 1, kDim, 256);
    single.reserve(256);
    bulk.reserve(256);
    for (size_t i = 0; i < kRows; ++i)
      single.write(0, 0, start + i, 1, &k[i * kDim], &k_scale[i], &v[i * kDim], &v_scale[i]);
    bulk.write(0, 0, start, kRows, k.data(), k_scale.data(), v.data(), v_scale.data());
    const KVBlock a = single.block(0, 0, 0), b = bulk.block(0, 0, 0);
    EXPECT_EQ(0, std::memcmp(a.k, b.k, kKeyBlock * kDim)) << start;
    EXPECT_EQ(0, std::memcmp(a.v, b.v, kKeyBlock * kDim)) << start;
    EXPECT_EQ(0, std::memcmp(a.k_scale, b.k_scale, kKeyBlock * sizeof(float))) << start;
    EXPECT_EQ(0, std::memcmp(a.v_log_scale, b.v_log_scale, kKeyBlock * sizeof(int16_t))) << start;
  }
}

TEST(KVCache, ForksShareUntilWritten) {
  KVCache cache(1, 1, kDim, 1000);
  append(cache, 300);
  KVCache fork = cache.fork();
  EXPECT_EQ(fork.block(0, 0, 0).k, cache.block(0, 0, 0).k);
  append(fork, 10, /*salt=*/40);
  EXPECT_EQ(fork.block(0, 0, 0).k, cache.block(0, 0, 0).k) << "the full block stays shared";
  EXPECT_NE(fork.block(0, 0, 1).k, cache.block(0, 0, 1).k) << "the block written to does not";
  EXPECT_EQ(k_at(fork, 0, 0, 299, 5), k_at(cache, 0, 0, 299, 5));
  append(cache, 10);
  EXPECT_NE(k_at(fork, 0, 0, 305, 5), k_at(cache, 0, 0, 305, 5));
}

TEST(KVCache, TruncateFreesBlocksAndRefusesGrowth) {
  KVCache cache(1, 2, kDim, 1000);
  append(cache, 600);
  EXPECT_EQ(cache.nbytes(), cache.bytes_for(600));
  cache.truncate(256);
  EXPECT_EQ(cache.length(), 256u);
  EXPECT_EQ(cache.nbytes(), cache.bytes_for(256));
  EXPECT_THROW(cache.truncate(257), InvalidArgument);
}

TEST(KVCache, OverflowLeavesItAsItWas) {
  KVCache cache(1, 1, kDim, 300);
  append(cache, 299);
  EXPECT_THROW(cache.reserve(301), ContextOverflow);
  EXPECT_EQ(cache.length(), 299u);
  append(cache, 1);
  EXPECT_EQ(cache.length(), 300u);
}

TEST(KVCache, RefusesBadShapes) {
  EXPECT_THROW(KVCache(0, 1, kDim, 10), InvalidArgument);
  EXPECT_THROW(KVCache(1, 1, 24, 10), InvalidArgument);
  EXPECT_THROW(KVCache(1, 1, kDim, 0), InvalidArgument);
  EXPECT_THROW(KVCache(1, size_t{1} << 40, kDim, 10), InvalidArgument);
}

}  // namespace
}  // namespace intattention
