#include "linear.h"

#include <algorithm>

#include "dispatch.h"
#include "error.h"

namespace intattention {
namespace {

// Rows of x per work item. Kernels take 4 to 8 of them at a time past all columns of the item, so that its weights
// (96 columns of k = 1536 are 92 KB) come from L2 for all but the first.
constexpr size_t kRowsPerItem = 64;

// Output columns per work item: small enough that 4 threads share 576 columns evenly, large enough
// (32 columns of k = 576 are 11 KB of weights, about 0.5 us) that taking an item costs nothing.
constexpr size_t kMinColumnsPerItem = 32;
constexpr size_t kItemsPerThread = 8;

struct Item {
  const PackedWeights* weights;
  size_t column, columns;  // within the part
  size_t offset;           // of the part in a row of y
  size_t row, rows;
};

size_t columns_per_item(size_t out_features, int threads) {
  const size_t even = out_features / (static_cast<size_t>(threads) * kItemsPerThread);
  return std::max(kMinColumnsPerItem, even / kTileRows * kTileRows);
}

std::vector<Item> split(const std::vector<LinearW4A8::Part>& parts, size_t out_features, size_t m, int threads) {
  const size_t step = columns_per_item(out_features, threads);
  std::vector<Item> items;
  for (size_t row = 0; row < m; row += kRowsPerItem) {
    size_t offset = 0;
    for (const LinearW4A8::Part& part : parts) {
      for (size_t column = 0; column < part->out_features; column += step)
        items.push_back({part.get(), column, std::min(step, part->out_features - column), offset, row,
                         std::min(kRowsPerItem, m - row)});
      offset += part->out_features;
    }
  }
  return items;
}

}  // namespace

LinearW4A8::LinearW4A8(std::vector<Part> parts) : parts_(std::move(parts)) {
  if (parts_.empty()) throw InvalidArgument("linear: no weights");
  for (const Part& part : parts_) {
    if (part->in_features != in_features())
      throw InvalidArgument(message("linear: parts have in_features ", in_features(), " and ", part->in_features));
    out_features_ += part->out_features;
  }
}

void LinearW4A8::forward(ThreadPool& pool, size_t m, const Activations& x, size_t first, float* y) const {
  const KernelTable& table = active_table();
  const std::vector<Item> items = split(parts_, out_features_, m, pool.threads());
  pool.parallel_for(items.size(), [&](size_t index, int) {
    const Item& item = items[index];
    const QuantizedRows rows = x.rows(first + item.row);
    const uint8_t* tile = item.weights->tile(item.column / kTileRows);
    float* out = y + item.row * out_features_ + item.offset + item.column;
    if (item.weights->format == WeightFormat::kW8G32)
      table.gemm_w8a8(item.rows, item.columns, in_features(), &rows, tile, out, out_features_);
    else
      table.gemm_w4a8(item.rows, item.columns, in_features(), &rows, tile,
                      item.weights->format == WeightFormat::kW4G32A, out, out_features_);
  });
}

}  // namespace intattention
