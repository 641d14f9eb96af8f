// The walk is that of attention(): blocks of 256 keys, ranges of 1024 with a running maximum, ranges merged in order;
// few tiles (decode) are split over ranges as well. Only the softmax differs, and the scales: one per tensor.
#include "attention_quant_only.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "dispatch.h"
#include "exp_f32.h"

namespace intattention {
namespace {

constexpr size_t kTileQueryRows = 32;  // as in attention(): s32 logits of 32 rows x 256 keys stay in L1 + L2

using States = RowStates<int32_t>;  // maxima in units of q8 * k8

// What one thread needs for one tile.
struct Scratch {
  AlignedBuffer q, logits, probs, pv, range_state, total_state;

  Scratch(size_t rows, size_t head_dim)
      : q(rows * head_dim),
        logits(rows * kKeyBlock * sizeof(int32_t)),
        probs(rows * kKeyBlock),
        pv(rows * head_dim * sizeof(int32_t)),
        range_state(States::floats(rows, head_dim) * sizeof(float)),
        total_state(States::floats(rows, head_dim) * sizeof(float)) {}
};

class QuantOnlyKernel {
 public:
  QuantOnlyKernel(const AttentionShape& shape, const Int8Heads& q, const Int8Heads& k, const Int8Heads& v,
                  const KVCache& cache)
      : table_(active_table()),
        shape_(shape),
        q_(q),
        v_scale_(v.scale),
        factor_(std::min(q.scale * k.scale * shape.scale, std::numeric_limits<float>::max())),
        cache_(cache),
        tiles_(shape, kTileQueryRows) {}

  const QueryTiling& tiles() const { return tiles_; }

  // Walks the blocks of one key range; state starts afresh.
  void range(const QueryTile& tile, size_t range, Scratch& scratch, const States& state) const {
    state.clear();
    gather_rows(tiles_, tile, shape_.head_dim, q_.data, scratch.q.as<int8_t>());
    for_blocks_of_range(shape_.mask, range, [&](size_t index) { block(tile, index, scratch, state); });
  }

  float decay(int32_t from, int32_t to) const {
    return from == kNoMax ? 0.0f : exp_f32(static_cast<float>(from - to) * factor_);
  }

  void store(const QueryTile& tile, const States& total, float* out) const {
    const size_t d = shape_.head_dim;
    for (size_t row = 0; row < tiles_.rows(tile); ++row) {
      float* to = out + tiles_.source_row(tile, row) * d;
      const float inverse = total.sum[row] > 0.0f ? v_scale_ / total.sum[row] : 0.0f;
      for (size_t c = 0; c < d; ++c) to[c] = total.out[row * d + c] * inverse;
    }
  }

 private:
  KeySpan visible(size_t token, size_t block_start) const {
    return shape_.mask.visible(token).within(block_start, kKeyBlock);
  }

  void block(const QueryTile& tile, size_t index, Scratch& scratch, const States& state) const {
    // Both ends of the visible span grow with the token: the last token sees furthest.
    const size_t start = index * kKeyBlock, d = shape_.head_dim;
    const size_t keys = visible(tile.first_token + tile.tokens - 1, start).end;
    if (keys == 0 || visible(tile.first_token, start).begin == kKeyBlock) return;
    const KVBlock kv = cache_.block(0, tile.kv_head, index);
    const size_t n = (keys + 15) / 16 * 16;  // the softmax works on 16 keys at a time
    int32_t *logits = scratch.logits.as<int32_t>(), *pv = scratch.pv.as<int32_t>();
    int8_t* probs = scratch.probs.as<int8_t>();
    table_.gemm_s8s8s32(tiles_.rows(tile), n, d, scratch.q.as<int8_t>(), d, kv.k, kTileRows * d, logits, kKeyBlock);
    for (size_t row = 0; row < tiles_.rows(tile); ++row) {
      const KeySpan span = visible(tile.first_token + row / shape_.group(), start);
      FloatSoftmaxRow io{static_cast<uint32_t>(span.begin), static_cast<uint32_t>(span.end), factor_, state.max[row],
                         0};
      table_.softmax_s32s8(n, logits + row * kKeyBlock, &io, probs + row * kKeyBlock);
      rescale(row, io, state);
    }
    table_.gemm_s8s8s32(tiles_.rows(tile), d, n, probs, kKeyBlock, kv.v, kTileRows * kKeyBlock, pv, d);
    for (size_t i = 0; i < tiles_.rows(tile) * d; ++i) state.out[i] += static_cast<float>(pv[i]);
  }

  // Brings a row's sum and output to the block's maximum, and adds the block's sum. A row without a visible key stays
  // as it is: its maximum has not moved and its P is 0.
  void rescale(size_t row, const FloatSoftmaxRow& io, const States& state) const {
    const int32_t former = state.max[row];
    if (io.max != former && former != kNoMax) {
      const float a = decay(former, io.max);
      state.sum[row] *= a;
      float* out = state.out + row * state.head_dim;
      for (size_t c = 0; c < state.head_dim; ++c) out[c] *= a;
    }
    state.sum[row] += static_cast<float>(io.sum);
    state.max[row] = io.max;
  }

  const KernelTable& table_;
  const AttentionShape shape_;
  const Int8Heads q_;
  const float v_scale_, factor_;
  const KVCache& cache_;
  const QueryTiling tiles_;
};

}  // namespace

void attention_quant_only(ThreadPool& pool, const AttentionShape& shape, const Int8Heads& q, const Int8Heads& k,
                          const Int8Heads& v, float* out) {
  check_group(shape);
  const KVCache cache = pack_int8_heads(pool, shape, k.data, v.data);
  const QuantOnlyKernel kernel(shape, q, k, v, cache);
  const QueryTiling& tiles = kernel.tiles();
  const size_t ranges = key_ranges(shape.mask), d = shape.head_dim;
  std::vector<std::unique_ptr<Scratch>> scratch;
  for (int worker = 0; worker < pool.threads(); ++worker) scratch.push_back(std::make_unique<Scratch>(tiles.rows(), d));
  // Few tiles (decode): every (tile, range) becomes an item, and the merge follows in the same order.
  const bool split = ranges > 1 && tiles.count() < 2 * static_cast<size_t>(pool.threads());
  const size_t part_floats = States::floats(tiles.rows(), d);
  AlignedBuffer parts(split ? tiles.count() * ranges * part_floats * sizeof(float) : 0);
  const auto states = [&](float* memory, const QueryTile& tile) { return States::at(memory, tiles.rows(tile), d); };
  const auto part = [&](size_t item) { return parts.as<float>() + item * part_floats; };
  if (split)
    pool.parallel_for(tiles.count() * ranges, [&](size_t item, int worker) {
      const QueryTile tile = tiles[tiles.count() - 1 - item / ranges];  // causal: the long ones first
      kernel.range(tile, item % ranges, *scratch[static_cast<size_t>(worker)], states(part(item), tile));
    });
  pool.parallel_for(tiles.count(), [&](size_t index, int worker) {
    Scratch& own = *scratch[static_cast<size_t>(worker)];
    const QueryTile tile = tiles[tiles.count() - 1 - index];
    const States current = states(own.range_state.as<float>(), tile), total = states(own.total_state.as<float>(), tile);
    total.clear();
    for (size_t range = 0; range < ranges; ++range) {
      if (!split) kernel.range(tile, range, own, current);
      total.add(split ? states(part(index * ranges + range), tile) : current,
                [&](int32_t from, int32_t to) { return kernel.decay(from, to); });
    }
    kernel.store(tile, total, out);
  });
}

}  // namespace intattention
