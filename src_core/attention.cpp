#include "attention.h"

#include <algorithm>

#include "attention_tile.h"
#include "dispatch.h"
#include "error.h"
#include "exp_f32.h"
#include "index_scale.h"
#include "packing.h"
#include "rotation.h"

namespace intattention {

// What one thread needs for one tile.
struct AttentionWorkspace::Scratch {
  AlignedBuffer logits, probs, counts, pv, v_row, range_state, total_state;
  BlockScales scales;
  // Per row: shift of the logits; and of the block at hand: whether it counts, factors of the output before and of
  // what it adds, and the log scale of V to which smaller ones were raised.
  std::vector<int> narrow;
  std::vector<char> used;
  std::vector<float> decay, weight;
  std::vector<int32_t> lowest;
  const AttentionWorkspace* workspace;
  int worker;

  Scratch(size_t rows, size_t head_dim, size_t state_floats, const AttentionWorkspace* owner, int owner_worker)
      : logits(rows * kKeyBlock * sizeof(int32_t)),
        probs(rows * kKeyBlock),
        counts(kKeyBlock * sizeof(int16_t)),
        pv(rows * head_dim * sizeof(int32_t)),
        v_row(head_dim * sizeof(int32_t)),
        range_state(state_floats * sizeof(float)),
        total_state(state_floats * sizeof(float)),
        narrow(rows),
        used(rows),
        decay(rows),
        weight(rows),
        lowest(rows),
        workspace(owner),
        worker(owner_worker) {}

  void stage(AttentionStage next) const {
    if (workspace->on_stage != nullptr) workspace->on_stage(workspace->stage_context, worker, next);
  }
};

namespace {

using Scratch = AttentionWorkspace::Scratch;

// Query rows of a tile: K and V are read once per tile, so at 16K keys fewer than 32 rows would be bound by
// DRAM on an RK3588; the s32 logits of 32 rows x 256 keys (32 KB) stay in L1 + L2.
constexpr size_t kTileQueryRows = 32;

using States = RowStates<int32_t>;  // maxima in counts

float decay(int32_t from, int32_t to) {
  if (from == to) return 1.0f;
  return from == kNoMax ? 0.0f : exp_f32(static_cast<float>(from - to) * kNatsPerCount);
}

class Kernel {
 public:
  Kernel(const AttentionInput& input, size_t layer)
      : table_(active_table()),
        shape_(input.shape),
        tiles_(input.shape, kTileQueryRows),
        // q and k are each sqrt(rotation) too large
        scale_(input.shape.scale / static_cast<float>(rotation_size(input.shape.head_dim))),
        q_(input.q),
        q_scale_(input.q_scale),
        cache_(*input.cache),
        layer_(layer),
        out_(input.out) {}

  const QueryTiling& tiles() const { return tiles_; }
  size_t ranges() const { return key_ranges(shape_.mask); }

  // Walks the blocks of one key range; state starts afresh.
  void range(const QueryTile& tile, size_t range, Scratch& scratch, const States& state) const {
    state.clear();
    const int8_t* q = query_rows(tile);
    for (size_t row = 0; row < state.rows; ++row)
      scratch.narrow[row] = narrow_shift(shape_.head_dim, q + row * shape_.head_dim);
    for_blocks_of_range(shape_.mask, range, [&](size_t index) { block(tile, index, scratch, state); });
  }

  void store(const QueryTile& tile, const States& total) const {
    const size_t group = shape_.group(), d = shape_.head_dim, rotation = rotation_size(d);
    for (size_t row = 0; row < total.rows; ++row) {
      const size_t token = tile.first_token + row / group, head = tile.kv_head * group + row % group;
      float* out = out_.data + token * out_.token_stride + head * out_.head_stride;
      // the transform and its inverse multiply by `rotation`
      const float one = static_cast<float>(kSumWeightOne) / static_cast<float>(rotation);
      const float inverse = total.sum[row] > 0.0f ? one / total.sum[row] : 0.0f;
      for (size_t c = 0; c < d; ++c) out[c] = total.out[row * d + c] * inverse;
      table_.hadamard_f32(d, rotation, out, out);
    }
  }

 private:
  const int8_t* query_rows(const QueryTile& tile) const {
    return q_ + (tile.kv_head * shape_.q_len + tile.first_token) * shape_.group() * shape_.head_dim;
  }

  KeySpan visible(size_t token, size_t block_start) const {
    return shape_.mask.visible(token).within(block_start, kKeyBlock);
  }

  void block(const QueryTile& tile, size_t index, Scratch& scratch, const States& state) const {
    // Both ends of the visible span grow with the token: the last token sees furthest.
    const size_t start = index * kKeyBlock, rows = state.rows, d = shape_.head_dim;
    const size_t keys = visible(tile.first_token + tile.tokens - 1, start).end;
    if (keys == 0 || visible(tile.first_token, start).begin == kKeyBlock) return;
    const KVBlock kv = cache_.block(layer_, tile.kv_head, index);
    const size_t n = (keys + 15) / 16 * 16;  // the softmax works on 16 keys at a time
    scratch.stage(AttentionStage::kQK);
    table_.gemm_s8s8s32(rows, n, d, query_rows(tile), d, kv.k, kTileRows * d, scratch.logits.as<int32_t>(), kKeyBlock);
    scratch.stage(AttentionStage::kSoftmax);
    softmax_rows(tile, start, n, kv, scratch, state);
    scratch.stage(AttentionStage::kPV);
    table_.gemm_u8s8s32(rows, d, n, scratch.probs.data(), kKeyBlock, kv.v, kTileRows * kKeyBlock,
                        scratch.pv.as<int32_t>(), d);
    for (size_t row = 0; row < rows; ++row)
      if (scratch.used[row])
        table_.accumulate_s32f32(d, scratch.decay[row], scratch.weight[row], scratch.pv.as<int32_t>() + row * d,
                                 state.out + row * d);
    take_off_surplus(keys, kv, scratch, state);
    scratch.stage(AttentionStage::kOther);
  }

  // E' of every row of the block into scratch.probs; updates max and sum; leaves the factors for the output.
  void softmax_rows(const QueryTile& tile, size_t start, size_t n, const KVBlock& kv, Scratch& scratch,
                    const States& state) const {
    scratch.scales.reset();
    for (size_t token = 0; token < tile.tokens; ++token) {
      const KeySpan span = visible(tile.first_token + token, start);
      const BlockScales& scales = scales_for(span, kv, scratch);
      for (size_t row = token * shape_.group(); row < (token + 1) * shape_.group(); ++row)
        softmax_row(tile, row, span, n, scales, scratch, state);
    }
  }

  // The scales over keys [0, span.end): the cache's own if that is the whole block and it is full.
  const BlockScales& scales_for(const KeySpan& span, const KVBlock& kv, Scratch& scratch) const {
    if (span.end == kKeyBlock && kv.scales != nullptr) return *kv.scales;
    scratch.scales.extend_to(span.end, kv.k_scale, kv.v_log_scale);
    return scratch.scales;
  }

  void softmax_row(const QueryTile& tile, size_t row, const KeySpan& span, size_t n, const BlockScales& scales,
                   Scratch& scratch, const States& state) const {
    const float q_scale = q_scale_[(tile.kv_head * shape_.q_len + tile.first_token) * shape_.group() + row];
    const int narrow = scratch.narrow[row];
    const RowFactor f = row_factor(q_scale, scales.k_scale_max, scale_, narrow);
    IndexSoftmaxRow io{};
    io.begin = static_cast<uint32_t>(span.begin);
    io.end = static_cast<uint32_t>(span.end);
    io.narrow = narrow;
    io.lshift = f.lshift;
    io.factor = f.factor;
    io.max = state.max[row];
    const IndexSoftmaxKeys keys = scales.keys();
    table_.index_softmax_s32u8(n, scratch.logits.as<int32_t>() + row * kKeyBlock, &keys, &io,
                               scratch.counts.as<int16_t>(), scratch.probs.data() + row * kKeyBlock);
    scratch.used[row] = io.sum > 0;
    if (io.sum == 0) return;
    const int32_t max = std::max(state.max[row], io.max);
    scratch.decay[row] = decay(state.max[row], max);
    scratch.weight[row] = decay(io.max, max);
    scratch.lowest[row] = scales.lowest();
    state.sum[row] =
        state.sum[row] * scratch.decay[row] + (static_cast<float>(io.sum) * scales.sum_unit) * scratch.weight[row];
    state.max[row] = max;
  }

  // E' of a key whose scale of V was raised multiplies v8 by too much: the difference is taken off in float. Rare: a
  // scale below 1/16 of the block's largest.
  void take_off_surplus(size_t keys, const KVBlock& kv, Scratch& scratch, const States& state) const {
    int32_t highest = kNoMax;
    for (size_t row = 0; row < state.rows; ++row)
      if (scratch.used[row]) highest = std::max(highest, scratch.lowest[row]);
    if ((kv.scales != nullptr ? *kv.scales : scratch.scales).log_min >= highest) return;
    const size_t d = shape_.head_dim;
    const B8Layout layout{cache_.inner(), kTileRows * kKeyBlock};
    int32_t* v = scratch.v_row.as<int32_t>();
    for (size_t j = 0; j < keys; ++j) {
      const int32_t own = kv.v_log_scale[j];
      if (own >= highest) continue;
      for (size_t c = 0; c < d; ++c)
        v[c] = kv.v[b8_offset(layout, c, j)];  // NOLINT(bugprone-signed-char-misuse): a number, no character
      for (size_t row = 0; row < state.rows; ++row) {
        const uint8_t e = scratch.probs.data()[row * kKeyBlock + j];
        if (e == 0 || own >= scratch.lowest[row]) continue;
        const float share = exp_f32(static_cast<float>(own - scratch.lowest[row]) * kNatsPerCount);
        const float surplus = (static_cast<float>(e) * (1.0f - share)) * scratch.weight[row];
        table_.accumulate_s32f32(d, 1.0f, -surplus, v, state.out + row * d);
      }
    }
  }

 public:
  static constexpr size_t kMaxGroup = 256;

 private:
  const KernelTable& table_;
  const AttentionShape shape_;
  const QueryTiling tiles_;
  const float scale_;
  const int8_t* q_;
  const float* q_scale_;
  const KVCache& cache_;
  const size_t layer_;
  const AttentionOutput out_;
};

void check(const AttentionShape& shape, const KVCache& cache) {
  if (cache.inner() != active_table().attention_inner)
    throw InvalidArgument(message("attention: the cache is packed with ", cache.inner(),
                                  " interleaved bytes, the active table '", active_table().name, "' reads ",
                                  active_table().attention_inner, "; make a new cache after use_isa()"));
  if (shape.group() > Kernel::kMaxGroup)
    throw InvalidArgument(message("attention: ", shape.group(), " query heads per kv head exceed ", Kernel::kMaxGroup));
}

// A tile of one of the inputs. If key ranges are items of their own, their partial results are number first_part on.
struct Item {
  const Kernel* kernel;
  QueryTile tile;
  size_t first_part;
};

// Causal: later tiles are longer, so they come first and the short ones even out the end.
std::vector<Item> all_tiles(const std::vector<Kernel>& kernels) {
  std::vector<Item> items;
  size_t parts = 0;
  for (auto kernel = kernels.rbegin(); kernel != kernels.rend(); ++kernel)
    for (size_t i = kernel->tiles().count(); i-- > 0; parts += kernel->ranges())
      items.push_back({&*kernel, kernel->tiles()[i], parts});
  return items;
}

}  // namespace

AttentionWorkspace::AttentionWorkspace() = default;
AttentionWorkspace::~AttentionWorkspace() = default;

void AttentionWorkspace::prepare(int threads, size_t rows, size_t head_dim, size_t part_floats) {
  if (rows > rows_ || head_dim != head_dim_ || scratch_.size() < static_cast<size_t>(threads)) {
    scratch_.clear();
    for (int worker = 0; worker < threads; ++worker)
      scratch_.push_back(std::make_unique<Scratch>(rows, head_dim, States::floats(rows, head_dim), this, worker));
    rows_ = rows;
    head_dim_ = head_dim;
  }
  if (parts_.size() < part_floats * sizeof(float)) parts_ = AlignedBuffer(part_floats * sizeof(float));
}

void attention(ThreadPool& pool, const std::vector<AttentionInput>& inputs, size_t layer,
               AttentionWorkspace& workspace) {
  std::vector<Kernel> kernels;
  size_t rows = 0, most_ranges = 0;
  const size_t head_dim = inputs.front().shape.head_dim;
  for (const AttentionInput& input : inputs) {
    check(input.shape, *input.cache);
    kernels.emplace_back(input, layer);
    rows = std::max(rows, kernels.back().tiles().rows());
    most_ranges = std::max(most_ranges, kernels.back().ranges());
  }
  const std::vector<Item> items = all_tiles(kernels);
  const size_t state_floats = States::floats(rows, head_dim);
  // Few tiles (decode): every (tile, range) becomes an item, and the merge follows in the same order.
  std::vector<std::pair<const Item*, size_t>> parts;
  if (most_ranges > 1 && items.size() < 2 * static_cast<size_t>(pool.threads()))
    for (const Item& item : items)
      for (size_t range = 0; range < item.kernel->ranges(); ++range) parts.emplace_back(&item, range);
  workspace.prepare(pool.threads(), rows, head_dim, parts.size() * state_floats);
  const auto states = [&](float* memory, const Item& item) {
    return States::at(memory, item.kernel->tiles().rows(item.tile), head_dim);
  };
  const auto part = [&](size_t index) { return workspace.parts() + index * state_floats; };
  pool.parallel_for(parts.size(), [&](size_t index, int worker) {
    const auto& [item, range] = parts[index];
    item->kernel->range(item->tile, range, workspace.scratch(worker), states(part(index), *item));
  });
  pool.parallel_for(items.size(), [&](size_t index, int worker) {
    Scratch& scratch = workspace.scratch(worker);
    const Item& item = items[index];
    const States own = states(scratch.range_state.as<float>(), item);
    const States total = states(scratch.total_state.as<float>(), item);
    total.clear();
    for (size_t range = 0; range < item.kernel->ranges(); ++range) {
      if (parts.empty()) item.kernel->range(item.tile, range, scratch, own);
      total.add(parts.empty() ? own : states(part(item.first_part + range), item), decay);
    }
    item.kernel->store(item.tile, total);
  });
}

}  // namespace intattention
