#include "attention_float.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention_tile.h"
#include "dispatch.h"
#include "error.h"
#include "exp_f32.h"
#include "float_panels.h"

namespace intattention {
namespace {

// Query rows of a tile: a multiple of the row blocks of every kernel (6, 4, 8). The f32 logits of 48 rows x 256 keys
// (48 KB) and the panels they meet stay in L2.
constexpr size_t kTileQueryRows = 48;

using States = RowStates<float>;  // maxima of the unscaled logits

bool finite(float x) { return std::fabs(x) <= std::numeric_limits<float>::max(); }

// What one thread needs for one tile; independent of kv_len.
struct Scratch {
  AlignedBuffer query, query16, logits, probs16, panel, range_state, total_state;

  Scratch(size_t rows, size_t d)
      : query(rows * d * sizeof(float)),
        query16(rows * d * sizeof(uint16_t)),
        logits(rows * kKeyBlock * sizeof(float)),
        probs16(rows * kKeyBlock * sizeof(uint16_t)),
        panel(std::max(d, kKeyBlock) * kFloatPanel * sizeof(float)),
        range_state(States::floats(rows, d) * sizeof(float)),
        total_state(States::floats(rows, d) * sizeof(float)) {}
};

// Keys start .. start + n of one block as a tile meets them: n is a multiple of 16, the last ones may be masked.
struct KeySlice {
  size_t start, n;
  const void *k, *v;  // panels; those of v are kKeyBlock keys long
};

class FloatKernel {
 public:
  FloatKernel(const AttentionShape& shape, const FloatPanels& panels, const float* q, float* out)
      : table_(active_table()),
        shape_(shape),
        panels_(panels),
        storage_(panels.storage()),
        d_(shape.head_dim),
        logit_scale_(storage_ == FloatStorage::kF32 ? shape.scale : 1.0f),
        q_(q),
        out_(out) {}

  // Query rows of the tile into scratch. float16: scaled before rounding, so that sums stay in range.
  void load_query(const QueryTile& tile, Scratch& scratch) const {
    const size_t group = shape_.group(), count = tile.tokens * group * d_;
    float* rows = scratch.query.as<float>();
    const float scale = storage_ == FloatStorage::kF32 ? 1.0f : shape_.scale;
    for (size_t row = 0; row < tile.tokens * group; ++row) {
      const float* from = q_ + query_offset(tile, row);
      for (size_t c = 0; c < d_; ++c) rows[row * d_ + c] = from[c] * scale;
    }
    if (storage_ == FloatStorage::kF32) return;
    table_.narrow_f32f16(count, rows, scratch.query16.as<uint16_t>());
    if (storage_ == FloatStorage::kF16Widened) table_.widen_f16f32(count, scratch.query16.as<uint16_t>(), rows);
  }

  // Walks the blocks of one key range; state starts afresh.
  void range(const QueryTile& tile, size_t range, Scratch& scratch, const States& state) const {
    state.clear();
    for_blocks_of_range(shape_.mask, range, [&](size_t index) {
      const KeySlice slice = visible_slice(tile, index);
      if (slice.n == 0) return;
      query_keys(state.rows, slice, scratch);
      softmax_rows(tile, slice, scratch, state);
      probs_values(state.rows, slice, scratch, state.out);
    });
  }

  float decay(float from, float to) const {
    return from == kNoLogit ? 0.0f : from == to ? 1.0f : exp_f32((from - to) * logit_scale_);
  }

  void store(const QueryTile& tile, const States& total) const {
    for (size_t row = 0; row < total.rows; ++row) {
      float* out = out_ + query_offset(tile, row);
      const float inverse = total.max[row] == kNoLogit ? 0.0f : 1.0f / total.sum[row];
      int beyond = !finite(total.max[row]);
      for (size_t c = 0; c < d_; ++c) {
        out[c] = total.out[row * d_ + c] * inverse;
        beyond |= !finite(out[c]);
      }
      if (beyond != 0) throw_overflow(tile.kv_head);
    }
  }

 private:
  [[noreturn]] void throw_overflow(size_t kv_head) const {
    throw NumericError(message("attention: overflow of ", storage_ == FloatStorage::kF32 ? "float32" : "float16",
                               " in the logits or the output of kv head ", kv_head));
  }

  size_t query_offset(const QueryTile& tile, size_t row) const {
    const size_t group = shape_.group();
    return ((tile.kv_head * group + row % group) * shape_.q_len + tile.first_token + row / group) * d_;
  }

  // Both ends of the visible span grow with the token: the first token sees furthest back, the last one furthest on.
  KeySlice visible_slice(const QueryTile& tile, size_t index) const {
    const size_t start = index * kKeyBlock;
    const size_t end = shape_.mask.visible(tile.first_token + tile.tokens - 1).within(start, kKeyBlock).end;
    const size_t first = shape_.mask.visible(tile.first_token).within(start, kKeyBlock).begin / 16 * 16;
    if (end <= first) return {start, 0, nullptr, nullptr};
    return {start + first, (end - first + 15) / 16 * 16, panels_.keys(tile.kv_head, index, first),
            panels_.values(tile.kv_head, index, first)};
  }

  void query_keys(size_t rows, const KeySlice& keys, Scratch& scratch) const {
    float* logits = scratch.logits.as<float>();
    const float* q = scratch.query.as<float>();
    if (storage_ == FloatStorage::kF32) {
      table_.gemm_f32f32f32(rows, keys.n, d_, q, d_, static_cast<const float*>(keys.k), kFloatPanel * d_, false, logits,
                            kKeyBlock);
      return;
    }
    const uint16_t* k = static_cast<const uint16_t*>(keys.k);
    if (storage_ == FloatStorage::kF16) {
      table_.gemm_f16f16f32(rows, keys.n, d_, scratch.query16.as<uint16_t>(), d_, k, kFloatPanel * d_, false, logits,
                            kKeyBlock);
      return;
    }
    for (size_t j = 0; j < keys.n; j += kFloatPanel) {
      table_.widen_f16f32(d_ * kFloatPanel, k + j * d_, scratch.panel.as<float>());
      table_.gemm_f32f32f32(rows, kFloatPanel, d_, q, d_, scratch.panel.as<float>(), 0, false, logits + j, kKeyBlock);
    }
  }

  // Probabilities of every row; updates max and sum and rescales the output where the maximum has moved.
  void softmax_rows(const QueryTile& tile, const KeySlice& keys, Scratch& scratch, const States& state) const {
    const size_t group = shape_.group();
    for (size_t row = 0; row < state.rows; ++row) {
      const KeySpan span = shape_.mask.visible(tile.first_token + row / group).within(keys.start, keys.n);
      SoftmaxRow io{static_cast<uint32_t>(span.begin), static_cast<uint32_t>(span.end), logit_scale_, state.max[row],
                    0.0f};
      float* logits = scratch.logits.as<float>() + row * kKeyBlock;
      if (storage_ == FloatStorage::kF16)
        table_.softmax_f32f16(keys.n, logits, &io, scratch.probs16.as<uint16_t>() + row * kKeyBlock);
      else
        table_.softmax_f32f32(keys.n, logits, &io, logits);
      if (span.empty()) continue;
      if (io.max == kNoLogit) throw_overflow(tile.kv_head);  // every logit is -Inf
      const float a = decay(state.max[row], io.max);
      state.max[row] = io.max;
      state.sum[row] = state.sum[row] * a + io.sum;
      float* out = state.out + row * d_;
      for (size_t c = 0; a != 1.0f && c < d_; ++c) out[c] *= a;
    }
  }

  // out += probs * v
  void probs_values(size_t rows, const KeySlice& keys, Scratch& scratch, float* out) const {
    const float* probs = scratch.logits.as<float>();
    constexpr size_t kStride = kFloatPanel * kKeyBlock;
    if (storage_ == FloatStorage::kF32) {
      table_.gemm_f32f32f32(rows, d_, keys.n, probs, kKeyBlock, static_cast<const float*>(keys.v), kStride, true, out,
                            d_);
      return;
    }
    const uint16_t* v = static_cast<const uint16_t*>(keys.v);
    if (storage_ == FloatStorage::kF16) {
      table_.gemm_f16f16f32(rows, d_, keys.n, scratch.probs16.as<uint16_t>(), kKeyBlock, v, kStride, true, out, d_);
      return;
    }
    for (size_t c = 0; c < d_; c += kFloatPanel, v += kStride) {
      table_.widen_f16f32(keys.n * kFloatPanel, v, scratch.panel.as<float>());
      table_.gemm_f32f32f32(rows, kFloatPanel, keys.n, probs, kKeyBlock, scratch.panel.as<float>(), 0, true, out + c,
                            d_);
    }
  }

  const KernelTable& table_;
  const AttentionShape& shape_;
  const FloatPanels& panels_;
  const FloatStorage storage_;
  const size_t d_;
  const float logit_scale_;
  const float* q_;
  float* out_;
};

FloatStorage choose_storage(FloatPrecision precision) {
  if (precision == FloatPrecision::kFp32) return FloatStorage::kF32;
  const KernelTable& table = active_table();
  if (table.gemm_f16f16f32 != nullptr) return FloatStorage::kF16;
  if (table.widen_f16f32 != nullptr) return FloatStorage::kF16Widened;
  throw UnsupportedIsa(message("attention: the active ISA '", table.name, "' has no float16 kernels"));
}

// All tiles of the KV heads that lie in `panels`.
void attend(ThreadPool& pool, const AttentionShape& shape, const FloatKernel& kernel, size_t first_head, size_t heads,
            std::vector<Scratch>& scratch, AlignedBuffer& parts) {
  const QueryTiling tiling(shape, kTileQueryRows);
  const size_t tiles = heads * tiling.per_head(), ranges = key_ranges(shape.mask);
  const size_t part_floats = States::floats(tiling.rows(), shape.head_dim);
  // Few tiles (decode): every (tile, range) becomes an item, and the merge follows in the same order.
  const bool split = ranges > 1 && tiles < 2 * static_cast<size_t>(pool.threads());
  const size_t part_bytes = split ? tiles * ranges * part_floats * sizeof(float) : 0;
  if (parts.size() < part_bytes) parts = AlignedBuffer(part_bytes);
  // Causal: later tiles are longer, so they come first and the short ones even out the end.
  const auto tile_of = [&](size_t item) { return tiling[(first_head + heads) * tiling.per_head() - 1 - item]; };
  const auto states = [&](AlignedBuffer& memory, size_t index, const QueryTile& tile) {
    return States::at(memory.as<float>() + index * part_floats, tiling.rows(tile), shape.head_dim);
  };
  if (split)
    pool.parallel_for(tiles * ranges, [&](size_t index, int worker) {
      const QueryTile tile = tile_of(index / ranges);
      Scratch& own = scratch[static_cast<size_t>(worker)];
      kernel.load_query(tile, own);
      kernel.range(tile, index % ranges, own, states(parts, index, tile));
    });
  pool.parallel_for(tiles, [&](size_t item, int worker) {
    const QueryTile tile = tile_of(item);
    Scratch& own = scratch[static_cast<size_t>(worker)];
    const States total = states(own.total_state, 0, tile);
    total.clear();
    if (!split) kernel.load_query(tile, own);
    for (size_t range = 0; range < ranges; ++range) {
      const States part = split ? states(parts, item * ranges + range, tile) : states(own.range_state, 0, tile);
      if (!split) kernel.range(tile, range, own, part);
      total.add(part, [&](float from, float to) { return kernel.decay(from, to); });
    }
    kernel.store(tile, total);
  });
}

}  // namespace

void attention_float(ThreadPool& pool, const AttentionShape& shape, FloatPrecision precision, const float* q,
                     const float* k, const float* v, float* out) {
  FloatPanels panels(choose_storage(precision), shape.n_kv_heads, shape.mask.kv_len, shape.head_dim, pool.threads());
  const FloatKernel kernel(shape, panels, q, out);
  const size_t rows = QueryTiling(shape, kTileQueryRows).rows();
  std::vector<Scratch> scratch;
  for (int worker = 0; worker < pool.threads(); ++worker) scratch.emplace_back(rows, shape.head_dim);
  AlignedBuffer parts;
  for (size_t head = 0; head < shape.n_kv_heads; head += panels.heads()) {
    const size_t heads = std::min(panels.heads(), shape.n_kv_heads - head);
    panels.pack(pool, head, heads, k, v);
    attend(pool, shape, kernel, head, heads, scratch, parts);
  }
}

}  // namespace intattention
