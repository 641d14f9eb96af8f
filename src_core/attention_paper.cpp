// P needs the maximum and the sum of a whole row, so the row is finished before PV begins:
//
//   QK over all key blocks -> s32 [rows][keys] | one softmax call per row: maximum, index and sum, P (u8) | PV over all
//   blocks
//
// The row buffer takes 5 bytes per row and key: 160 per key for a tile of 32 rows, 2.6 MB per thread at 16K keys. It is
// written once and read twice, about 13 bytes of L2 traffic per logit.
//
// Rejected: walking the key blocks three times (maximum; sum; P), which needs no buffer but computes QK twice more. At
// d = 128 that is 256 multiplies per logit against those 13 bytes, and twice the time of the whole attention.
//
// P is sparse (a weight below 1/510 is 0), so runs of 64 keys whose P is 0 in the whole tile skip their PV.
#include "attention_paper.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "dispatch.h"

namespace intattention {
namespace {

// As in attention(): fewer rows would be bound by DRAM at long contexts, since K and V are read once per tile.
constexpr size_t kTileQueryRows = 32;

// Keys whose P is looked at together; a multiple of every table's inner.
constexpr size_t kRun = 64;

// What one thread needs for one tile.
struct Scratch {
  AlignedBuffer q, logits, probs, pv, sums;
  std::vector<uint8_t> live;  // one per run of kRun keys

  Scratch(size_t rows, size_t keys, size_t head_dim)
      : q(rows * head_dim),
        logits(rows * keys * sizeof(int32_t)),
        probs(rows * keys),
        pv(rows * head_dim * sizeof(int32_t)),
        sums(rows * head_dim * sizeof(int32_t)),
        live(keys / kRun) {}
};

class PaperKernel {
 public:
  PaperKernel(const AttentionShape& shape, const Int8Heads& q, const Int8Heads& k, const Int8Heads& v,
              PaperRounding rounding, const KVCache& cache)
      : table_(active_table()),
        shape_(shape),
        q_(q),
        v_scale_(v.scale),
        index_(paper_index(paper_clip(q.scale, k.scale, shape.scale, rounding), rounding)),
        cache_(cache),
        tiles_(shape, kTileQueryRows) {}

  const QueryTiling& tiles() const { return tiles_; }

  // Keys from one row of the buffer to the next: the largest span of any tile, in whole blocks, and one run more,
  // because rows a power of two apart would share the sets of L1.
  size_t buffer_stride() const {
    size_t largest = 0;
    for (size_t i = 0; i < tiles_.count() / shape_.n_kv_heads; ++i) {
      const KeySpan blocks = block_span(tiles_[i]);
      largest = std::max(largest, blocks.end - blocks.begin);
    }
    return largest * kKeyBlock + kRun;
  }

  void tile(const QueryTile& tile, size_t stride, Scratch& scratch, float* out, uint8_t* probs) const {
    const KeySpan blocks = block_span(tile);
    gather_rows(tiles_, tile, shape_.head_dim, q_.data, scratch.q.as<int8_t>());
    multiply_keys(tile, blocks, stride, scratch);
    softmax(tile, blocks, stride, scratch);
    multiply_values(tile, blocks, stride, scratch);
    store(tile, scratch, out);
    if (probs != nullptr) store_probs(tile, blocks, stride, scratch, probs);
  }

 private:
  // Key blocks that some row of the tile sees. Both ends of the visible span grow with the token.
  KeySpan block_span(const QueryTile& tile) const {
    const size_t begin = shape_.mask.visible(tile.first_token).begin / kKeyBlock;
    const size_t end = shape_.mask.visible(tile.first_token + tile.tokens - 1).end;
    return {begin, std::max(begin, (end + kKeyBlock - 1) / kKeyBlock)};
  }

  // Keys of block `index` up to the last one that the tile sees, a multiple of 16 as the kernels want it.
  size_t keys_of_block(const QueryTile& tile, size_t index) const {
    const KeySpan span = shape_.mask.visible(tile.first_token + tile.tokens - 1).within(index * kKeyBlock, kKeyBlock);
    return (span.end + 15) / 16 * 16;
  }

  void multiply_keys(const QueryTile& tile, const KeySpan& blocks, size_t stride, Scratch& scratch) const {
    const size_t d = shape_.head_dim;
    for (size_t b = blocks.begin; b < blocks.end; ++b)
      table_.gemm_s8s8s32(tiles_.rows(tile), keys_of_block(tile, b), d, scratch.q.as<int8_t>(), d,
                          cache_.block(0, tile.kv_head, b).k, kTileRows * d,
                          scratch.logits.as<int32_t>() + (b - blocks.begin) * kKeyBlock, stride);
  }

  void softmax(const QueryTile& tile, const KeySpan& blocks, size_t stride, Scratch& scratch) const {
    const size_t origin = blocks.begin * kKeyBlock, keys = (blocks.end - blocks.begin) * kKeyBlock;
    std::fill(scratch.live.begin(), scratch.live.end(), uint8_t{0});
    for (size_t row = 0; row < tiles_.rows(tile); ++row) {
      const KeySpan span = shape_.mask.visible(tile.first_token + row / shape_.group()).within(origin, keys);
      uint8_t* probs = scratch.probs.data() + row * stride;
      table_.paper_softmax_s32u8(keys, scratch.logits.as<int32_t>() + row * stride, span.begin, span.end, &index_,
                                 probs);
      for (size_t run = span.begin / kRun; run * kRun < span.end; ++run)
        if (scratch.live[run] == 0 && any(probs + run * kRun)) scratch.live[run] = 1;
    }
  }

  static bool any(const uint8_t* run) {
    uint64_t bits = 0;
    for (size_t i = 0; i < kRun; i += sizeof bits) {
      uint64_t eight;
      std::memcpy(&eight, run + i, sizeof eight);
      bits |= eight;
    }
    return bits != 0;
  }

  // sums = P v8, in one gemm call per stretch of live runs of a block. |sums| <= 127 * 32768: P > 0 needs E / sum >= 1
  // / 510.
  void multiply_values(const QueryTile& tile, const KeySpan& blocks, size_t stride, Scratch& scratch) const {
    constexpr size_t kRuns = kKeyBlock / kRun;
    std::fill_n(scratch.sums.as<int32_t>(), tiles_.rows(tile) * shape_.head_dim, 0);
    for (size_t b = blocks.begin; b < blocks.end; ++b) {
      const uint8_t* live = scratch.live.data() + (b - blocks.begin) * kRuns;
      for (size_t run = 0; run < kRuns; ++run) {
        size_t stop = run;
        while (stop < kRuns && live[stop] != 0) ++stop;
        if (stop == run) continue;
        const size_t first = run * kRun, last = std::min(stop * kRun, keys_of_block(tile, b));
        const int8_t* v = cache_.block(0, tile.kv_head, b).v + first * kTileRows;
        add_values(tiles_.rows(tile), last - first, scratch.probs.data() + (b - blocks.begin) * kKeyBlock + first,
                   stride, v, scratch);
        run = stop;
      }
    }
  }

  void add_values(size_t rows, size_t keys, const uint8_t* probs, size_t stride, const int8_t* v,
                  Scratch& scratch) const {
    const size_t d = shape_.head_dim;
    int32_t *pv = scratch.pv.as<int32_t>(), *sums = scratch.sums.as<int32_t>();
    table_.gemm_u8s8s32(rows, d, keys, probs, stride, v, kTileRows * kKeyBlock, pv, d);
    for (size_t i = 0; i < rows * d; ++i) sums[i] += pv[i];
  }

  void store(const QueryTile& tile, const Scratch& scratch, float* out) const {
    const size_t d = shape_.head_dim;
    for (size_t row = 0; row < tiles_.rows(tile); ++row) {
      const int32_t* sums = scratch.sums.as<int32_t>() + row * d;
      float* to = out + tiles_.source_row(tile, row) * d;
      for (size_t c = 0; c < d; ++c) to[c] = static_cast<float>(sums[c]) * v_scale_ / 255.0f;
    }
  }

  void store_probs(const QueryTile& tile, const KeySpan& blocks, size_t stride, const Scratch& scratch,
                   uint8_t* probs) const {
    const size_t length = shape_.mask.kv_len, begin = blocks.begin * kKeyBlock;
    const size_t end = std::min(blocks.end * kKeyBlock, length);
    for (size_t row = 0; row < tiles_.rows(tile); ++row) {
      uint8_t* to = probs + tiles_.source_row(tile, row) * length;
      std::memset(to, 0, length);
      if (begin < end) std::memcpy(to + begin, scratch.probs.data() + row * stride, end - begin);
    }
  }

  const KernelTable& table_;
  const AttentionShape shape_;
  const Int8Heads q_;
  const float v_scale_;
  const PaperIndex index_;
  const KVCache& cache_;
  const QueryTiling tiles_;
};

}  // namespace

void attention_paper(ThreadPool& pool, const AttentionShape& shape, const Int8Heads& q, const Int8Heads& k,
                     const Int8Heads& v, PaperRounding rounding, float* out, uint8_t* probs) {
  check_group(shape);
  const KVCache cache = pack_int8_heads(pool, shape, k.data, v.data);
  const PaperKernel kernel(shape, q, k, v, rounding, cache);
  const size_t stride = kernel.buffer_stride();
  std::vector<std::unique_ptr<Scratch>> scratch;
  for (int worker = 0; worker < pool.threads(); ++worker)
    scratch.push_back(std::make_unique<Scratch>(kernel.tiles().rows(), stride, shape.head_dim));
  // The last tile of a head is the longest under a causal mask: from the back, threads finish together.
  const size_t count = kernel.tiles().count();
  pool.parallel_for(count, [&](size_t item, int worker) {
    kernel.tile(kernel.tiles()[count - 1 - item], stride, *scratch[static_cast<size_t>(worker)], out, probs);
  });
}

}  // namespace intattention
