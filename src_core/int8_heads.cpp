#include "int8_heads.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "error.h"

namespace intattention {

void gather_rows(const QueryTiling& tiles, const QueryTile& tile, size_t head_dim, const int8_t* q, int8_t* rows) {
  for (size_t row = 0; row < tiles.rows(tile); ++row)
    std::memcpy(rows + row * head_dim, q + tiles.source_row(tile, row) * head_dim, head_dim);
}

KVCache pack_int8_heads(ThreadPool& pool, const AttentionShape& shape, const int8_t* k, const int8_t* v) {
  const size_t length = shape.mask.kv_len, d = shape.head_dim, blocks = (length + kKeyBlock - 1) / kKeyBlock;
  KVCache cache(1, shape.n_kv_heads, d, length);
  cache.reserve(length);
  static constexpr float no_scales[kKeyBlock] = {};  // one scale per tensor, kept by the caller
  pool.parallel_for(shape.n_kv_heads * blocks, [&](size_t item, int) {
    const size_t head = item / blocks, first = item % blocks * kKeyBlock;
    const size_t row = (head * length + first) * d;
    cache.write(0, head, first, std::min(kKeyBlock, length - first), k + row, no_scales, v + row, no_scales);
  });
  cache.set_length(length);
  return cache;
}

float quantize_tensor(ThreadPool& pool, size_t n, const float* x, int8_t* q) {
  constexpr size_t kChunk = 1 << 14;
  const size_t chunks = (n + kChunk - 1) / kChunk;
  std::vector<float> absmax(chunks, 0.0f);
  pool.parallel_for(chunks, [&](size_t c, int) {
    float largest = 0.0f, poison = 0.0f;  // 0 * x is NaN for NaN and Inf
    for (size_t i = c * kChunk; i < std::min(n, (c + 1) * kChunk); ++i) {
      largest = std::fabs(x[i]) > largest ? std::fabs(x[i]) : largest;
      poison += 0.0f * x[i];
    }
    absmax[c] = largest + poison;
  });
  float largest = 0.0f;
  for (float chunk : absmax) {
    if (!std::isfinite(chunk)) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, chunk);
  }
  const float s = largest / 127.0f;
  pool.parallel_for(chunks, [&](size_t c, int) {
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to nearest even
    for (size_t i = c * kChunk; i < std::min(n, (c + 1) * kChunk); ++i) {
      const float value = s > 0.0f ? std::min(std::max(x[i] / s, -127.0f), 127.0f) : 0.0f;
      q[i] = static_cast<int8_t>(static_cast<int32_t>((value + kRound) - kRound));
    }
  });
  return s;
}

void check_group(const AttentionShape& shape) {
  constexpr size_t kMaxGroup = 256;
  if (shape.group() > kMaxGroup)
    throw InvalidArgument(message("attention: ", shape.group(), " query heads per kv head exceed ", kMaxGroup));
}

}  // namespace intattention
