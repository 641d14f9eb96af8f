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
#include <cstdio>
#include <vector>

#include "gemv_block.cuh"
#include "gemv_share.cuh"
#include "launch.h"

namespace intattention::cuda {
namespace {

#ifndef GEMV_PRODUCERS
#define GEMV_PRODUCERS 12
#endif
#ifndef GEMV_DIAG
#define GEMV_DIAG 0
#endif
#ifndef GEMV_SLOTS
#define GEMV_SLOTS 4
#endif

constexpr uint32_t kProducers = GEMV_PRODUCERS;  // warps
template <bool kSwiglu>
constexpr uint32_t kThreads = (kProducers + (kSwiglu ? 2 : 1)) * kWarp;
constexpr uint32_t kRounds = 2;  // of terms in shared memory
template <WeightFormat F>
constexpr uint32_t kSlots = F == WeightFormat::kW8G32 ? GEMV_SLOTS / 2 : GEMV_SLOTS;

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
  uint32_t tokens;
  float* y;
  uint32_t ldy;
  DeviceRows act;
  uint64_t* sums;   // of gemv_scratch_bytes()
  uint32_t height;  // rows of a tile: below 32 where there are more multiprocessors than tiles of 32
  Line line;
  uint32_t ahead;  // chunks per producer that are asked into L2 at the start, beyond the slots
};

// A producer's view of the weights: where the lane's row lies in a chunk of the line.
template <WeightFormat F>
struct Source {
  const Line& line;
  const uint8_t* row;     // of chunk 0 of the line
  uint32_t scale_offset;  // of the row's scales in a chunk
  bool there;

  __device__ Source(const GemvArgs& a, uint32_t lane) : line(a.line) {
    const bool whole = a.height == kRowTile;  // tiles of the line are those of memory, and chunks are contiguous
    const uint32_t r = whole ? lane : blockIdx.x * a.height + lane;
    const ptrdiff_t skipped = static_cast<ptrdiff_t>(r / kRowTile) - (whole ? 0 : blockIdx.x);
    row = a.w.data + skipped * static_cast<ptrdiff_t>(a.w.chunks * chunk_bytes(F)) + r % kRowTile * 16;
    scale_offset = kChunkGroups * quant_bytes(F) - r % kRowTile * 8;
    there = lane < a.height && r / kRowTile < a.w.tiles;
  }
  __device__ const uint8_t* chunk(uint32_t index) const {
    const uint32_t u = line.unit.quotient(index);
    return row + static_cast<size_t>(index + (line.place(u) - u) * line.unit.d) * chunk_bytes(F);
  }

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
  __device__ void run(Barriers& barriers) const {
    const uint32_t rounds = (share.count() + kProducers - 1) / kProducers;
    for (uint32_t round = 0; round < rounds; ++round) {
      const uint32_t i = round * kProducers + warp, buffer = round % kRounds;
      wait_for_copies<kSlots<F> - 1>();
      const ChunkRow<F> chunk(slots[round % kSlots<F>], lane);
      fetch(round + kSlots<F>);
      if (round >= kRounds) barriers.empty[buffer].wait(round / kRounds - 1);
#if GEMV_DIAG == 2
      s.terms[buffer * kProducers + warp].t[0][lane] =
          make_float4(__uint_as_float(chunk.q[0][0].x ^ chunk.q[1][0].y),
                      __uint_as_float(chunk.q[2][0].z ^ chunk.scales[0].x), __uint_as_float(chunk.q[3][0].w), 0.0f);
#else
      if (i < share.count())
        multiply<F, M>(chunk, s, a.w.chunks, a.line.tile.remainder(share.chunk(i)), lane,
                       s.terms[buffer * kProducers + warp]);
#endif
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
      const uint32_t row = a.line.place(tile) * a.height + lane;
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
    for (int piece = 0; piece < Share::kPieces; ++piece) {
      const uint32_t first = share.first(piece), count = share.count(piece);
      if (count == 0) continue;
      if (piece == Share::kTail) take();
      uint32_t tile = a.line.tile.quotient(first), at = first - tile * a.w.chunks;
      for (uint32_t left = count; left > 0;) {
        const uint32_t round = done / kProducers, slot = done % kProducers, buffer = round % kRounds;
        if (slot == 0) barriers.full[buffer].wait(round / kRounds);
        const uint32_t n = min(min(left, a.w.chunks - at), kProducers - slot);
#if GEMV_DIAG != 1
        add(s.terms + buffer * kProducers + slot, at, n);
#else
        y[0] += s.terms[0].t[0][lane].x;
#endif
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
      if (piece == Share::kHead) {
        give();
        clear();
      }
    }
  }
};

// SwiGLU and quantisation of the units that the chain has ended, so that it need not wait for them.
template <WeightFormat F, int M>
__device__ void finish(const GemvArgs& a, const Share& share, const GemvShared<F, M>& s, Barriers& barriers) {
  const uint32_t lane = threadIdx.x % kWarp, first = a.line.unit.quotient(share.whole);
  const uint32_t whole = a.line.unit.quotient(share.head) - first, count = whole + (share.whole > share.begin ? 1 : 0);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t unit = a.line.place(i < whole ? first + i : first - 1);
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

#ifdef CUDA_EXPERIMENT
__device__ unsigned long long g_trace[1 << 16][6];
__device__ unsigned int g_trace_n;
__device__ inline unsigned long long now() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}
#endif

template <WeightFormat F, int M, bool kSwiglu>
__global__ void __launch_bounds__(kThreads<kSwiglu>, M <= 2 ? 2 : 1) gemv_kernel(const GemvArgs a) {
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ Barriers barriers;
#ifdef CUDA_TRACE
  unsigned long long t0 = now();
#endif
  const GemvShared<F, M> s(memory, kProducers * kSlots<F>, kProducers * kRounds, a.w.chunks);
  const Share share(a.line);
  const Producer<F, M> producer(a, share, s);
  const uint32_t warp = threadIdx.x / kWarp;
  if (warp < kProducers) producer.start();
  if (threadIdx.x == 0) barriers.init();
  let_next_start();
  wait_for_previous();
#ifdef CUDA_TRACE
  unsigned long long t1 = now();
#endif
  fill<F, M>(a.w, a.x, a.tokens, s);
  __syncthreads();
#ifdef CUDA_TRACE
  unsigned long long t2 = now();
#endif
  if (warp < kProducers)
    producer.run(barriers);
  else if (warp == kProducers)
    Chain<F, M, kSwiglu>(a, share, s).run(barriers);
  else if (kSwiglu)
    finish<F, M>(a, share, s, barriers);
#ifdef CUDA_TRACE
  if (threadIdx.x % 32 == 0 && (warp == 0 || warp == kProducers) && (blockIdx.x == 0 || blockIdx.x == gridDim.x / 2)) {
    unsigned int i = atomicAdd(&g_trace_n, 1) & 0xffff;
    g_trace[i][0] = blockIdx.x * 1000 + warp;
    g_trace[i][1] = t0;
    g_trace[i][2] = t1;
    g_trace[i][3] = t2;
    g_trace[i][4] = now();
    g_trace[i][5] = a.w.rows * 100000ull + a.w.k;
  }
#endif
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
  d.shared -= static_cast<int>(sizeof(Barriers));  // which are not in the dynamic part
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
  a.line = Line(units, a.w.chunks, kSwiglu ? 2 : 1, std::min(units, multiprocessors));
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
  launch(name, kernel, {a.line.blocks, 1, kThreads<kSwiglu>, shared}, stream, a);
  return;
#endif
  launch("gemv_wxa8", kernel, {a.line.blocks, 1, kThreads<kSwiglu>, shared}, stream, a);
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

#ifdef CUDA_TRACE
void dump_trace(const char* title) {
  static unsigned long long host[1 << 16][6];
  unsigned int n = 0, zero = 0;
  cudaDeviceSynchronize();
  cudaMemcpyFromSymbol(&n, g_trace_n, 4);
  cudaMemcpyFromSymbol(host, g_trace, sizeof(host));
  cudaMemcpyToSymbol(g_trace_n, &zero, 4);
  std::vector<std::vector<unsigned long long>> rows;
  for (unsigned int i = 0; i < std::min(n, 65536u); ++i) rows.push_back({host[i], host[i] + 6});
  std::sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return a[4] < b[4]; });
  const size_t show = 48;
  fprintf(stderr, "trace %s: %u entries; block*1000+warp rows k: start waited filled end (ns)\n", title, n);
  const size_t from = rows.size() > 4 * show ? rows.size() - 4 * show : 0;
  for (size_t i = from; i < std::min(rows.size(), from + show); ++i) {
    auto base = rows[from][1];
    fprintf(stderr, "  %6llu %7llu %6llu: %8lld %8lld %8lld %8lld\n", rows[i][0], rows[i][5] / 100000,
            rows[i][5] % 100000, (long long)(rows[i][1] - base), (long long)(rows[i][2] - base),
            (long long)(rows[i][3] - base), (long long)(rows[i][4] - base));
  }
}
#endif
GemvScratch::GemvScratch()
    : sums_(static_cast<size_t>(device().multiprocessors) * kMaxGemvTokens * 2 * kWarp * sizeof(uint64_t)) {}

void gemv_wxa8(const WeightView& w, uint32_t tokens, const DeviceRows& x, float* y, uint32_t ldy,
               const GemvScratch& scratch, cudaStream_t stream) {
  static const uint32_t ahead = knob("GEMV_AHEAD", 0);
  run_format<false>({w, x, tokens, y, ldy, {}, scratch.sums(), 0, {}, ahead}, stream);
}

void gemv_swiglu(const WeightView& w, uint32_t tokens, const DeviceRows& x, const DeviceRows& act,
                 const GemvScratch& scratch, cudaStream_t stream) {
  static const uint32_t ahead = knob("GEMV_AHEAD", 0);
  run_format<true>({w, x, tokens, nullptr, 0, act, scratch.sums(), 0, {}, ahead}, stream);
}

}  // namespace intattention::cuda
