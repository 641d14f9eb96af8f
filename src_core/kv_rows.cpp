#include "kv_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "error.h"

namespace intattention {
namespace {

// The kernels' sums of products have room for 127 * 127, not for 128.
void check_bytes(const char* name, size_t layer, const int8_t* values, size_t count) {
  const int8_t* found = std::find(values, values + count, std::numeric_limits<int8_t>::min());
  if (found != values + count)
    throw InvalidArgument(message("cache rows: ", name, " of layer ", layer, " holds -128 at index ", found - values));
}

void check_layer(const KVCache& cache, size_t layer, const LayerRows& rows, size_t count) {
  const size_t scales = cache.n_kv_heads() * count;
  check_bytes("k", layer, rows.k, scales * cache.head_dim());
  check_bytes("v", layer, rows.v, scales * cache.head_dim());
  const int16_t lowest = log_scale(0.0f), highest = log_scale(std::numeric_limits<float>::max());
  for (size_t i = 0; i < scales; ++i) {
    if (!(std::isfinite(rows.k_scale[i]) && rows.k_scale[i] >= 0.0f))
      throw InvalidArgument(message("cache rows: k_scale of layer ", layer, " is ", rows.k_scale[i], " at index ", i));
    if (rows.v_log_scale[i] < lowest || rows.v_log_scale[i] > highest)
      throw InvalidArgument(message("cache rows: v_log_scale of layer ", layer, " is ", rows.v_log_scale[i],
                                    " at index ", i, ", expected ", lowest, " to ", highest));
  }
}

}  // namespace

void append_rows(KVCache& cache, const std::vector<LayerRows>& layers, size_t count) {
  if (layers.size() != cache.n_layers())
    throw InvalidArgument(message("cache rows: of ", layers.size(), " layers, the cache has ", cache.n_layers()));
  for (size_t layer = 0; layer < layers.size(); ++layer) check_layer(cache, layer, layers[layer], count);
  const size_t start = cache.length(), end = start + count, d = cache.head_dim();
  cache.reserve(end);
  for (size_t layer = 0; layer < layers.size(); ++layer)
    for (size_t head = 0; head < cache.n_kv_heads(); ++head)
      for (size_t position = start; position < end;) {
        const size_t piece = std::min(end - position, kKeyBlock - position % kKeyBlock);
        const size_t row = head * count + (position - start);
        const LayerRows& rows = layers[layer];
        cache.write(layer, head, position, piece, rows.k + row * d, rows.k_scale + row, rows.v + row * d,
                    rows.v_log_scale + row);
        position += piece;
      }
  cache.set_length(end);
}

void read_rows(const KVCache& cache, size_t layer, size_t count, int8_t* k, float* k_scale, int8_t* v,
               int16_t* v_log_scale) {
  if (layer >= cache.n_layers() || count > cache.length())
    throw InvalidArgument(message("cache rows: ", count, " rows of layer ", layer, ", the cache has ", cache.length(),
                                  " rows of ", cache.n_layers(), " layers"));
  for (size_t head = 0; head < cache.n_kv_heads(); ++head) {
    const size_t row = head * count, d = cache.head_dim();
    cache.read(layer, head, 0, count, k + row * d, k_scale + row, v + row * d, v_log_scale + row);
  }
}

}  // namespace intattention
