// The warps of a GEMV's block (gemv_wxa8.cu says who does what).
#pragma once

#include "gemv_block.cuh"
#include "gemv_share.cuh"

namespace intattention::cuda {

// Fewer or more producers, or other numbers of slots, cost 3 to 30 % of a step; so does asking more into L2.
constexpr uint32_t kProducers = 12;  // warps
template <bool kSwiglu>
constexpr uint32_t kThreads = (kProducers + (kSwiglu ? 2 : 1)) * kWarp;
constexpr uint32_t kRounds = 2;  // of terms in shared memory
template <WeightFormat F>
constexpr uint32_t kSlots = F == WeightFormat::kW8G32 ? 2 : 4;

// All of a block. full, empty: of a round of terms; done, taken: of a unit's sums.
struct Barriers {
  SharedBarrier full[kRounds], empty[kRounds], done[2], taken[2];

  __device__ void init() {
    for (uint32_t i = 0; i < kRounds; ++i) full[i].init(kProducers), empty[i].init(1);
    for (uint32_t i = 0; i < 2; ++i) done[i].init(1), taken[i].init(1);
  }
};

struct GemvArgs {
  WeightView w;
  DeviceRows x;
  NormedRow norm;  // instead of x, if hidden is not null
  uint32_t tokens;
  float* y;
  uint32_t ldy;
  DeviceRows act;
  uint64_t* sums;   // of GemvScratch
  uint32_t height;  // rows of a tile: below 32 where there are more multiprocessors than tiles of 32
  Line line;
};

// A producer's view of the weights: where the lane's row lies in a chunk of the line.
template <WeightFormat F>
struct Source {
  const uint8_t* row;     // of chunk 0 of the line
  uint32_t scale_offset;  // of the row's scales in a chunk
  bool there;

  __device__ Source(const GemvArgs& a, uint32_t lane) {
    const bool whole = a.height == kRowTile;  // tiles of the line are those of memory, and chunks are contiguous
    const uint32_t r = whole ? lane : blockIdx.x * a.height + lane;
    const ptrdiff_t skipped = static_cast<ptrdiff_t>(r / kRowTile) - (whole ? 0 : blockIdx.x);
    row = a.w.data + skipped * static_cast<ptrdiff_t>(a.w.chunks * chunk_bytes(F)) + r % kRowTile * 16;
    scale_offset = kChunkGroups * quant_bytes(F) - r % kRowTile * 8;
    there = lane < a.height && r / kRowTile < a.w.tiles;
  }
  __device__ const uint8_t* chunk(uint32_t index) const { return row + static_cast<size_t>(index) * chunk_bytes(F); }

  __device__ void copy(uint32_t index, uint32_t lane, ChunkSlot<F>& to, uint64_t policy) const {
    if (!there) return;
    const uint8_t* from = chunk(index);
#pragma unroll
    for (uint32_t g = 0; g < kChunkGroups; ++g)
#pragma unroll
      for (uint32_t h = 0; h < ChunkSlot<F>::kWords; ++h)
        copy_async_once<16>(&to.q[g][h][lane], from + g * quant_bytes(F) + h * 512, policy);
#pragma unroll
    for (uint32_t h = 0; h < ChunkSlot<F>::kScales; ++h)
      copy_async_once<8>(&to.scales[h][lane], from + scale_offset + h * 256, policy);
  }
};

template <WeightFormat F, int M>
struct Producer {
  const GemvArgs& a;
  const Share& share;
  const GemvShared<F, M>& s;
  const uint32_t warp, lane;
  const Source<F> source;
  const uint64_t policy;
  ChunkSlot<F>* const slots;

  __device__ Producer(const GemvArgs& args, const Share& own, const GemvShared<F, M>& shared)
      : a(args),
        share(own),
        s(shared),
        warp(threadIdx.x / kWarp),
        lane(threadIdx.x % kWarp),
        source(args, lane),
        policy(read_once_policy()),
        slots(shared.slots + warp * kSlots<F>) {}

  __device__ void fetch(uint32_t round) const {
    const uint32_t i = round * kProducers + warp;
    if (i < share.count()) source.copy(share.chunk(i), lane, slots[round % kSlots<F>], policy);
    commit_copies();
  }
  // What does not depend on the kernel before.
  __device__ void start() const {
    for (uint32_t round = 0; round < kSlots<F>; ++round) fetch(round);
  }
  __device__ void run(Barriers& barriers) const {
    const uint32_t rounds = (share.count() + kProducers - 1) / kProducers;
    for (uint32_t round = 0; round < rounds; ++round) {
      const uint32_t i = round * kProducers + warp, buffer = round % kRounds;
      wait_for_copies<kSlots<F> - 1>();
      const ChunkRow<F> chunk(slots[round % kSlots<F>], lane);
      fetch(round + kSlots<F>);
      if (round >= kRounds) barriers.empty[buffer].wait(round / kRounds - 1);
      if (i < share.count())
        multiply<F, M>(chunk, s, a.w.chunks, a.line.tile.remainder(share.chunk(i)), lane,
                       s.terms[buffer * kProducers + warp]);
      __syncwarp();
      if (lane == 0) barriers.full[buffer].arrive();
    }
  }
};

// The sums of a tile's rows; with SwiGLU tiles come in pairs, gate and up.
template <WeightFormat F, int M, bool kSwiglu>
struct Chain {
  const GemvArgs& a;
  const Share& share;
  const GemvShared<F, M>& s;
  const uint32_t lane;
  float y[M], gate[M];
  uint32_t ended = 0;  // units

  __device__ Chain(const GemvArgs& args, const Share& own, const GemvShared<F, M>& shared)
      : a(args), share(own), s(shared), lane(threadIdx.x % kWarp) {
    clear();
  }
  __device__ void clear() {
#pragma unroll
    for (int m = 0; m < M; ++m) y[m] = gate[m] = 0.0f;
  }
  // Sums of block `block`, [M][y, gate][lane].
  __device__ Sums sums(uint32_t block) const { return {a.sums + block * M * 2 * kWarp + lane}; }
  __device__ void give() const {
    const Sums to = sums(blockIdx.x);
#pragma unroll
    for (int m = 0; m < M; ++m) {
      to.give(m * 2 * kWarp, y[m]);
      if (kSwiglu) to.give((m * 2 + 1) * kWarp, gate[m]);
    }
  }
  __device__ void take() {
    const Sums from = sums(blockIdx.x - 1);
#pragma unroll
    for (int m = 0; m < M; ++m) {
      y[m] = from.take(m * 2 * kWarp);
      if (kSwiglu) gate[m] = from.take((m * 2 + 1) * kWarp);
    }
  }

  __device__ void end_tile(uint32_t tile, Barriers& barriers) {
    if constexpr (!kSwiglu) {
      const uint32_t row = tile * a.height + lane;
#pragma unroll
      for (int m = 0; m < M; ++m)
        if (static_cast<uint32_t>(m) < a.tokens && lane < a.height && row < a.w.rows)
          a.y[static_cast<size_t>(m) * a.ldy + row] = y[m];
    } else if (tile % 2 == 0) {
#pragma unroll
      for (int m = 0; m < M; ++m) gate[m] = y[m], y[m] = 0.0f;
      return;
    } else {
      if (ended >= 2) barriers.taken[ended % 2].wait(ended / 2 - 1);
#pragma unroll
      for (int m = 0; m < M; ++m) s.sum_of(ended, m, 0, lane) = gate[m], s.sum_of(ended, m, 1, lane) = y[m];
      __syncwarp();
      if (lane == 0) barriers.done[ended % 2].arrive();
      ++ended;
    }
    clear();
  }

  // Adds chunks first .. first+n-1 of a tile, which lie in `terms`: kAtOnce at a time, the next ones being read
  // meanwhile.
  __device__ void add(const Terms<F, M>* terms, uint32_t first, uint32_t n) {
    constexpr uint32_t kAtOnce = M == 1 ? 4 : M == 2 ? 2 : 1;
    const uint32_t whole = min(first + n, a.w.groups / kChunkGroups) - first, batches = whole / kAtOnce;
    uint32_t at = 0;
    if (batches > 0) {
      TermRow<F, M, kAtOnce> row(terms, lane);
#pragma unroll 1
      for (; at < batches * kAtOnce; at += kAtOnce) {
        const TermRow<F, M, kAtOnce> next(terms + min(at + kAtOnce, (batches - 1) * kAtOnce), lane);
        row.add_all(s, a.w.chunks, first + at, y);
        row = next;
      }
    }
#pragma unroll 1
    for (; at < n; ++at)
      TermRow<F, M, 1>(terms + at, lane)
          .add_groups(at < whole ? kChunkGroups : a.w.groups % kChunkGroups, s, a.w.chunks, first + at, y);
  }
  __device__ void run(Barriers& barriers) {
    uint32_t done = 0;
    for (uint32_t piece = 0; piece < share.pieces(); ++piece) {
      const uint32_t first = share.first(piece), count = share.count(piece);
      if (count == 0) continue;
      if (share.is_tail(piece)) take();
      uint32_t tile = a.line.tile.quotient(first), at = first - tile * a.w.chunks;
      for (uint32_t left = count; left > 0;) {
        const uint32_t round = done / kProducers, slot = done % kProducers, buffer = round % kRounds;
        if (slot == 0) barriers.full[buffer].wait(round / kRounds);
        const uint32_t n = min(min(left, a.w.chunks - at), kProducers - slot);
        add(s.terms + buffer * kProducers + slot, at, n);
        done += n, left -= n, at += n;
        if (done % kProducers == 0) {
          __syncwarp();
          if (lane == 0) barriers.empty[buffer].arrive();
        }
        if (at == a.w.chunks) {
          end_tile(tile++, barriers);
          at = 0;
        }
      }
      if (share.is_head(piece)) {
        give();
        clear();
      }
    }
  }
};

// SwiGLU and quantisation of the units that the chain has ended, so that it need not wait for them.
template <WeightFormat F, int M>
__device__ inline void finish(const GemvArgs& a, const Share& share, const GemvShared<F, M>& s, Barriers& barriers) {
  const uint32_t lane = threadIdx.x % kWarp, count = share.ending();
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t unit = share.ending_unit(i);
    barriers.done[i % 2].wait(i / 2);
    float gate[M], up[M];
#pragma unroll
    for (int m = 0; m < M; ++m) gate[m] = s.sum_of(i, m, 0, lane), up[m] = s.sum_of(i, m, 1, lane);
    __syncwarp();
    if (lane == 0) barriers.taken[i % 2].arrive();
#pragma unroll
    for (int m = 0; m < M; ++m) {
      if (static_cast<uint32_t>(m) >= a.tokens) break;
      const size_t at = static_cast<size_t>(m) * (a.w.tiles / 2) + unit;
      quantize_group(silu_times(gate[m], up[m]), lane, a.act.q + at * kGroup, a.act.scale + at, a.act.sum + at);
    }
  }
}

}  // namespace intattention::cuda
