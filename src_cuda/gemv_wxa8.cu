// 1 to 8 rows of int8 activations against int4 or int8 weights: decoding, bound by the bytes of the weights.
//
// One block per multiprocessor takes its share of the chunks (gemv_share.cuh), its last warp apart from the others:
//
//   producers   warp w takes every 8th chunk (4 groups of 32 along k; a lane is a row, so it holds whole groups and
//               nothing is shuffled), forms t = sx * isum of each group and leaves it, with the scales, in shared
//               memory
//   chain       one warp adds them up, y = fma(d, t, y), in order of k: the order is what makes the bits those of the
//               CPU
//
// Weights come by cp.async, kSlots chunks ahead of every producer: enough bytes in flight to keep the memory busy, and
// what a block asks for before it waits for the previous kernel fills the gap between the two.
//
// Tried: a block per row tile, chunks in registers (54 to 65 % of the read bandwidth where tiles are few: blocks are
// uneven, too little is in flight at the start); a row per warp with a shuffle tree (another order of k, other bits).
#include <algorithm>

#include "gemv_block.cuh"
#include "gemv_share.cuh"
#include "launch.h"

namespace intattention::cuda {
namespace {

#ifndef GEMV_PRODUCERS
#define GEMV_PRODUCERS 8
#endif
#ifndef GEMV_SLOTS
#define GEMV_SLOTS 4
#endif

constexpr uint32_t kProducers = GEMV_PRODUCERS;  // warps
constexpr uint32_t kThreads = (kProducers + 1) * kWarp;
constexpr uint32_t kRounds = 2;  // of terms in shared memory
template <WeightFormat F>
constexpr uint32_t kSlots = F == WeightFormat::kW8G32 ? GEMV_SLOTS / 2 : GEMV_SLOTS;

struct GemvArgs {
  WeightView w;
  DeviceRows x;
  uint32_t tokens;
  float* y;
  uint32_t ldy;
  DeviceRows act;
  uint64_t* sums;   // of gemv_scratch_bytes()
  uint32_t height;  // rows of a tile: below 32 where there are more multiprocessors than tiles of 32
  uint32_t ahead;   // chunks per producer that are asked into L2 at the start, beyond the slots
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
  __device__ void prefetch(uint32_t index, uint32_t lane) const {
    if (!there) return;
    const uint8_t* from = chunk(index);
    if (lane % 8 == 0)
#pragma unroll
      for (uint32_t g = 0; g < kChunkGroups; ++g)
#pragma unroll
        for (uint32_t h = 0; h < ChunkSlot<F>::kWords; ++h)
          asm volatile("prefetch.global.L2 [%0];" ::"l"(from + g * quant_bytes(F) + h * 512));
    if (lane % 16 == 0)
#pragma unroll
      for (uint32_t h = 0; h < ChunkSlot<F>::kScales; ++h)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from + scale_offset + h * 256));
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
    for (uint32_t round = kSlots<F>; round < kSlots<F> + a.ahead; ++round) {
      const uint32_t i = round * kProducers + warp;
      if (i < share.count()) source.prefetch(share.chunk(i), lane);
    }
  }
  __device__ void run(SharedBarrier* full, SharedBarrier* empty) const {
    const uint32_t rounds = (share.count() + kProducers - 1) / kProducers;
    for (uint32_t round = 0; round < rounds; ++round) {
      const uint32_t i = round * kProducers + warp, buffer = round % kRounds;
      wait_for_copies<kSlots<F> - 1>();
      const ChunkRow<F> chunk(slots[round % kSlots<F>], lane);
      fetch(round + kSlots<F>);
      if (round >= kRounds) empty[buffer].wait(round / kRounds - 1);
      if (i < share.count())
        multiply<F, M>(chunk, s, a.w.chunks, share.chunk(i) % a.w.chunks, lane, s.terms[buffer * kProducers + warp]);
      __syncwarp();
      if (lane == 0) full[buffer].arrive();
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

  __device__ void store(uint32_t tile) const {
    const uint32_t row = tile * a.height + lane;
#pragma unroll
    for (int m = 0; m < M; ++m) {
      if (static_cast<uint32_t>(m) >= a.tokens) break;
      if constexpr (!kSwiglu) {
        if (lane < a.height && row < a.w.rows) a.y[static_cast<size_t>(m) * a.ldy + row] = y[m];
      } else {
        const size_t at = static_cast<size_t>(m) * (a.w.tiles / 2) + tile / 2;
        quantize_group(silu_times(gate[m], y[m]), lane, a.act.q + at * kGroup, a.act.scale + at, a.act.sum + at);
      }
    }
  }
  __device__ void end_tile(uint32_t tile) {
    if (kSwiglu && tile % 2 == 0) {
#pragma unroll
      for (int m = 0; m < M; ++m) gate[m] = y[m], y[m] = 0.0f;
      return;
    }
    store(tile);
    clear();
  }

  // Adds chunks first .. first+n-1 of a tile, which lie in `terms`.
  __device__ void add(const Terms<F, M>* terms, uint32_t first, uint32_t n) {
    const uint32_t last_groups = a.w.groups - (a.w.chunks - 1) * kChunkGroups;
#pragma unroll 4
    for (uint32_t j = 0; j < n; ++j) {
      const uint32_t chunk = first + j;
      add_terms<F, M>(terms[j], s, a.w.chunks, chunk, chunk + 1 == a.w.chunks ? last_groups : kChunkGroups, lane, y);
    }
  }
  __device__ void run(SharedBarrier* full, SharedBarrier* empty) {
    uint32_t done = 0;
    for (int piece = 0; piece < Share::kPieces; ++piece) {
      const uint32_t first = share.first(piece), count = share.count(piece);
      if (count == 0) continue;
      if (piece == Share::kTail) take();
      uint32_t tile = first / a.w.chunks, at = first % a.w.chunks;
      for (uint32_t left = count; left > 0;) {
        const uint32_t round = done / kProducers, slot = done % kProducers, buffer = round % kRounds;
        if (slot == 0) full[buffer].wait(round / kRounds);
        const uint32_t n = min(min(left, a.w.chunks - at), kProducers - slot);
        add(s.terms + buffer * kProducers + slot, at, n);
        done += n, left -= n, at += n;
        if (done % kProducers == 0) {
          __syncwarp();
          if (lane == 0) empty[buffer].arrive();
        }
        if (at == a.w.chunks) {
          end_tile(tile++);
          at = 0;
        }
      }
      if (piece == Share::kHead) {
        give();
        clear();
      }
    }
  }
};

template <WeightFormat F, int M, bool kSwiglu>
__global__ void __launch_bounds__(kThreads, M <= 2 ? 2 : 1) gemv_kernel(const GemvArgs a) {
  extern __shared__ __align__(16) uint8_t memory[];
  __shared__ SharedBarrier full[kRounds], empty[kRounds];
  const GemvShared<F, M> s(memory, kProducers * kSlots<F>, kProducers * kRounds, a.w.chunks);
  const uint32_t per_unit = a.w.chunks * (kSwiglu ? 2 : 1);
  const Share share((a.w.rows + a.height - 1) / a.height / (kSwiglu ? 2 : 1), per_unit);
  const Producer<F, M> producer(a, share, s);
  const bool produces = threadIdx.x / kWarp < kProducers;
  if (produces) producer.start();
  if (threadIdx.x == 0)
    for (uint32_t i = 0; i < kRounds; ++i) full[i].init(kProducers), empty[i].init(1);
  let_next_start();
  wait_for_previous();
  fill<F, M>(a.w, a.x, a.tokens, s);
  __syncthreads();
  if (produces)
    producer.run(full, empty);
  else
    Chain<F, M, kSwiglu>(a, share, s).run(full, empty);
}

struct Device {
  int id = -1, multiprocessors = 0, shared = 0;
};

const Device& device() {
  thread_local Device d;
  int id;
  check(cudaGetDevice(&id), "cudaGetDevice");
  if (d.id == id) return d;
  check(cudaDeviceGetAttribute(&d.multiprocessors, cudaDevAttrMultiProcessorCount, id), "multiprocessors");
  check(cudaDeviceGetAttribute(&d.shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, id), "shared memory");
  d.id = id;
  return d;
}

template <WeightFormat F, int M>
size_t shared_bytes(uint32_t chunks) {
  return GemvShared<F, M>::bytes(kProducers * kSlots<F>, kProducers * kRounds, chunks);
}

template <WeightFormat F, int M, bool kSwiglu>
void run(GemvArgs a, cudaStream_t stream) {
  const Device& dev = device();
  const uint32_t multiprocessors = static_cast<uint32_t>(dev.multiprocessors);
  a.height = kRowTile;
  if (!kSwiglu && a.w.tiles < multiprocessors) {
    constexpr uint32_t kStep = 4;  // rows: 64 bytes of a group, as memory is read
    const uint32_t rows = (a.w.rows + multiprocessors - 1) / multiprocessors;
    a.height = (rows + kStep - 1) / kStep * kStep;
  }
  const uint32_t units = (a.w.rows + a.height - 1) / a.height / (kSwiglu ? 2 : 1);
  const size_t shared = shared_bytes<F, M>(a.w.chunks);
  const auto kernel = gemv_kernel<F, M, kSwiglu>;
  if (shared > static_cast<size_t>(dev.shared))
    throw CudaError(message("gemv_wxa8: k ", a.w.k, " needs ", shared, " bytes of shared memory"));
  thread_local int allowed_on = -1;
  if (allowed_on != dev.id) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dev.shared), "gemv_wxa8");
    allowed_on = dev.id;
  }
#ifdef CUDA_EXPERIMENT
  a.ahead = g_ahead;
  const char* name = kSwiglu             ? "gate_up"
                     : a.w.k > a.w.rows  ? "down"
                     : a.w.rows > 100000 ? "lm_head"
                     : a.w.rows == a.w.k ? "o"
                                         : "qkv";
  launch(name, kernel, {std::min(units, multiprocessors), 1, kThreads, shared}, stream, a);
  return;
#endif
  launch("gemv_wxa8", kernel, {std::min(units, multiprocessors), 1, kThreads, shared}, stream, a);
}

// Tokens at once: as many as the activations' room in shared memory allows.
template <WeightFormat F>
uint32_t tokens_at_once(uint32_t chunks) {
  const size_t room = static_cast<size_t>(device().shared);
  return shared_bytes<F, 8>(chunks) <= room   ? 8
         : shared_bytes<F, 4>(chunks) <= room ? 4
         : shared_bytes<F, 2>(chunks) <= room ? 2
                                              : 1;
}

DeviceRows from(const DeviceRows& rows, uint32_t token, uint32_t k) {
  const size_t group = static_cast<size_t>(token) * (k / kGroup);
  return {rows.q + static_cast<size_t>(token) * k, rows.scale + group, rows.sum + group};
}

template <WeightFormat F, bool kSwiglu>
void run_tokens(const GemvArgs& all, cudaStream_t stream) {
  const uint32_t step = tokens_at_once<F>(all.w.chunks);
  for (uint32_t t = 0; t < all.tokens; t += step) {
    GemvArgs a = all;
    a.tokens = std::min(step, all.tokens - t);
    a.x = from(all.x, t, a.w.k);
    if (kSwiglu)
      a.act = from(all.act, t, a.w.rows / 2);
    else
      a.y = all.y + static_cast<size_t>(t) * a.ldy;
#ifdef GEMV_ONE
    run<F, 1, kSwiglu>(a, stream);
#else
    (a.tokens == 1   ? run<F, 1, kSwiglu>
     : a.tokens == 2 ? run<F, 2, kSwiglu>
     : a.tokens <= 4 ? run<F, 4, kSwiglu>
                     : run<F, 8, kSwiglu>)(a, stream);
#endif
  }
}

template <bool kSwiglu>
void run_format(const GemvArgs& a, cudaStream_t stream) {
  switch (a.w.format) {
    case WeightFormat::kW4G32:
      return run_tokens<WeightFormat::kW4G32, kSwiglu>(a, stream);
    case WeightFormat::kW4G32A:
      return run_tokens<WeightFormat::kW4G32A, kSwiglu>(a, stream);
    case WeightFormat::kW8G32:
      return run_tokens<WeightFormat::kW8G32, kSwiglu>(a, stream);
  }
}

uint32_t knob(const char* name, uint32_t value) {
  const char* text = getenv(name);
  return text == nullptr ? value : static_cast<uint32_t>(atoi(text));
}

}  // namespace

GemvScratch::GemvScratch()
    : sums_(static_cast<size_t>(device().multiprocessors) * kMaxGemvTokens * 2 * kWarp * sizeof(uint64_t)) {}

void gemv_wxa8(const WeightView& w, uint32_t tokens, const DeviceRows& x, float* y, uint32_t ldy,
               const GemvScratch& scratch, cudaStream_t stream) {
  static const uint32_t ahead = knob("GEMV_AHEAD", 0);
  run_format<false>({w, x, tokens, y, ldy, {}, scratch.sums(), 0, ahead}, stream);
}

void gemv_swiglu(const WeightView& w, uint32_t tokens, const DeviceRows& x, const DeviceRows& act,
                 const GemvScratch& scratch, cudaStream_t stream) {
  static const uint32_t ahead = knob("GEMV_AHEAD", 0);
  run_format<true>({w, x, tokens, nullptr, 0, act, scratch.sums(), 0, ahead}, stream);
}

}  // namespace intattention::cuda
