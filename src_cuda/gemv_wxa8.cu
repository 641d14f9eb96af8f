// 1 to 8 rows of int8 activations against int4 or int8 weights: decoding, bound by the bytes of the weights.
//
// A block walks row tiles of 32, its last warp apart from the others:
//
//   producers   warp w takes chunk it * P + w of the tile (4 groups of 32 along k; a lane is a row, so it holds whole
//               groups and nothing is shuffled), forms t = sx * isum of each group and leaves it, with the scales, in
//               shared memory; the next chunk is on its way meanwhile
//   chain       one warp adds them up, y = fma(d, t, y), in order of k: the order is what makes the bits those of the
//   CPU
//
// Two buffers, one barrier per iteration: the chain works on one while the producers fill the other.
//
// isum starts at the bits of 1.5 * 2^23, so that read as a float it is 1.5 * 2^23 + isum, and t is one fused
// multiply-add with a single rounding (kernel_table.h). The nibbles are 16 * (q - 8) (device_weights.h), so sx is
// divided by 16, exactly; w4g32a wants the sum with q, which starts 8 * xsum higher.
//
// Tried or considered: a row per warp with a shuffle tree (another order of k, other bits); activations by __ldg
// instead of shared memory (a dependent L2 access at every first touch).
#include <algorithm>

#include <cuda_fp16.h>

#include "device_math.cuh"
#include "kernels.h"
#include "launch.h"

namespace intattention::cuda {
namespace {

constexpr uint32_t kMaxProducers = 13;  // with 72 registers two such blocks fit a multiprocessor
constexpr uint32_t kBufferGroups = kMaxProducers * kChunkGroups;

struct GemvArgs {
  WeightView w;
  DeviceRows x;
  uint32_t tokens, producers, ahead;  // ahead: iterations between the prefetch into L2 and the use
  float* y;
  uint32_t ldy;
  DeviceRows act;
};

__device__ inline uint4 load_once(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
__device__ inline uint2 load_once8(const void* p) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}

// Asks a chunk into L2, from one warp.
template <uint32_t kBytes>
__device__ inline void prefetch_l2(const uint8_t* p, uint32_t lane) {
#if __CUDA_ARCH__ >= 900
  if (lane == 0) asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(kBytes));
#else
  for (uint32_t at = lane * 128; at < kBytes; at += kWarp * 128) asm volatile("prefetch.global.L2 [%0];" ::"l"(p + at));
#endif
}

// What a lane holds of a chunk: its row's quants of 4 groups and their scales.
template <WeightFormat F>
struct Chunk {
  static constexpr int kWords = F == WeightFormat::kW8G32 ? 2 : 1;  // of 16 bytes per group
  uint4 q[kChunkGroups][kWords];
  uint2 d, mn;

  __device__ void load(const uint8_t* chunk, uint32_t lane) {
#pragma unroll
    for (uint32_t g = 0; g < kChunkGroups; ++g)
#pragma unroll
      for (int h = 0; h < kWords; ++h) q[g][h] = load_once(chunk + g * quant_bytes(F) + h * 512 + lane * 16);
    const uint8_t* scales = chunk + kChunkGroups * quant_bytes(F) + lane * 8;
    d = load_once8(scales);
    if (F == WeightFormat::kW4G32A) mn = load_once8(scales + 256);
  }

  // d in the lower half, mn in the upper.
  __device__ uint32_t scales(uint32_t g) const {
    const uint32_t dd = g < 2 ? d.x : d.y;
    if (F != WeightFormat::kW4G32A) return g % 2 ? dd >> 16 : dd & 0xffffu;
    return __byte_perm(dd, g < 2 ? mn.x : mn.y, g % 2 ? 0x7632 : 0x5410);
  }
};

__device__ inline int dot_nibbles(uint32_t v, uint32_t low, uint32_t high, int sum) {
  sum = dot4((v << 4) & 0xf0f0f0f0u, low, sum);
  return dot4(v & 0xf0f0f0f0u, high, sum);
}

// low: elements 0..15 of the group of activations, high: 16..31.
template <WeightFormat F>
__device__ inline int group_dot(const uint4* q, const uint4& low, const uint4& high, int sum) {
  if constexpr (F == WeightFormat::kW8G32) {
    sum = dot4(q[0].x, low.x, sum), sum = dot4(q[0].y, low.y, sum);
    sum = dot4(q[0].z, low.z, sum), sum = dot4(q[0].w, low.w, sum);
    sum = dot4(q[1].x, high.x, sum), sum = dot4(q[1].y, high.y, sum);
    sum = dot4(q[1].z, high.z, sum), sum = dot4(q[1].w, high.w, sum);
  } else {
    sum = dot_nibbles(q[0].x, low.x, high.x, sum), sum = dot_nibbles(q[0].y, low.y, high.y, sum);
    sum = dot_nibbles(q[0].z, low.z, high.z, sum), sum = dot_nibbles(q[0].w, low.w, high.w, sum);
  }
  return sum;
}

// Shared memory of a block.
template <int M>
struct Shared {
  float4* group;     // [M][chunks * 4]: sx, -1.5 * 2^23 * sx, start of isum (bits), sx * xsum
  int8_t* q;         // [M][chunks * 128]
  float* t;          // [2][P * 4][M][32]
  uint32_t* scales;  // [2][P * 4][32]

  __device__ Shared(uint8_t* memory, uint32_t chunks, uint32_t producers) {
    group = reinterpret_cast<float4*>(memory);
    q = reinterpret_cast<int8_t*>(group + M * chunks * kChunkGroups);
    t = reinterpret_cast<float*>(q + M * chunks * kChunkK);
    scales = reinterpret_cast<uint32_t*>(t + 2 * producers * kChunkGroups * M * kWarp);
  }
  static size_t bytes(uint32_t chunks, uint32_t producers) {
    return M * chunks * (kChunkGroups * sizeof(float4) + kChunkK) +
           2 * producers * kChunkGroups * kWarp * (M * sizeof(float) + sizeof(uint32_t));
  }
};

// Brings the activations in; groups beyond k and tokens beyond the last are zeros. The first piece of each array is on
// its way before any is stored.
template <WeightFormat F, int M>
__device__ void fill(const GemvArgs& a, const Shared<M>& s) {
  const uint32_t vectors = a.w.chunks * kChunkK / 16, groups = a.w.chunks * kChunkGroups;
  const auto vector = [&](uint32_t i) {
    const uint32_t m = i / vectors, v = i % vectors;
    const bool there = m < a.tokens && v * 16 < a.w.k;
    return there ? reinterpret_cast<const uint4*>(a.x.q + static_cast<size_t>(m) * a.w.k)[v] : uint4{};
  };
  const auto group = [&](uint32_t i) {
    const uint32_t m = i / groups, g = i % groups;
    const bool there = m < a.tokens && g < a.w.groups;
    const float sx = there ? a.x.scale[m * a.w.groups + g] : 0.0f;
    const int sum = there ? a.x.sum[m * a.w.groups + g] : 0;
    const float unit = F == WeightFormat::kW8G32 ? sx : sx * 0.0625f;
    const int start = kSumStart + (F == WeightFormat::kW4G32A ? 128 * sum : 0);
    return float4{unit, -kSumStartValue * unit, __int_as_float(start), sx * static_cast<float>(sum)};
  };
  const uint32_t first = threadIdx.x;
  const uint4 v = first < M * vectors ? vector(first) : uint4{};
  const float4 g = first < M * groups ? group(first) : float4{};
  if (first < M * vectors) reinterpret_cast<uint4*>(s.q)[first] = v;
  if (first < M * groups) s.group[first] = g;
  for (uint32_t i = first + blockDim.x; i < M * vectors; i += blockDim.x) reinterpret_cast<uint4*>(s.q)[i] = vector(i);
  for (uint32_t i = first + blockDim.x; i < M * groups; i += blockDim.x) s.group[i] = group(i);
}

// t and scales of one chunk into buffer `buf`.
template <WeightFormat F, int M>
__device__ void produce(const Chunk<F>& c, const Shared<M>& s, uint32_t chunks, uint32_t chunk, uint32_t slot,
                        uint32_t lane) {
#pragma unroll
  for (uint32_t g = 0; g < kChunkGroups; ++g) {
    s.scales[(slot + g) * kWarp + lane] = c.scales(g);
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const uint32_t index = m * chunks * kChunkGroups + chunk * kChunkGroups + g;
      const uint4* x = reinterpret_cast<const uint4*>(s.q) + index * 2;
      const float4 group = s.group[index];
      const int sum = group_dot<F>(c.q[g], x[0], x[1], __float_as_int(group.z));
      s.t[((slot + g) * M + m) * kWarp + lane] = fmaf(__int_as_float(sum), group.x, group.y);
    }
  }
}

// y[m] += groups first .. first+n-1 of the tile, in order.
template <WeightFormat F, int M>
__device__ void chain(const Shared<M>& s, uint32_t groups_per_token, uint32_t first, uint32_t n, uint32_t slot,
                      uint32_t lane, float (&y)[M]) {
#pragma unroll 4
  for (uint32_t j = 0; j < n; ++j) {
    const uint32_t scales = s.scales[(slot + j) * kWarp + lane];
    const float d = __half2float(__ushort_as_half(static_cast<uint16_t>(scales & 0xffffu)));
#pragma unroll
    for (int m = 0; m < M; ++m) {
      y[m] = fmaf(d, s.t[((slot + j) * M + m) * kWarp + lane], y[m]);
      if (F == WeightFormat::kW4G32A) {
        const float mn = __half2float(__ushort_as_half(static_cast<uint16_t>(scales >> 16)));
        y[m] = fmaf(mn, s.group[m * groups_per_token + first + j].w, y[m]);
      }
    }
  }
}

// Where a block is: tile and iteration along k. With SwiGLU tiles come in pairs, gate and up.
template <bool kSwiglu>
struct Cursor {
  uint32_t tile, it;
  __device__ void advance(uint32_t iterations) {
    if (++it < iterations) return;
    it = 0;
    if (!kSwiglu)
      tile += gridDim.x;
    else
      tile += tile % 2 == 0 ? 1 : 2 * gridDim.x - 1;
  }
};

template <WeightFormat F, int M, bool kSwiglu>
__device__ void store(const GemvArgs& a, uint32_t tile, uint32_t lane, const float (&y)[M], float (&gate)[M]) {
  const uint32_t row = tile * kRowTile + lane;
#pragma unroll
  for (int m = 0; m < M; ++m) {
    if (static_cast<uint32_t>(m) >= a.tokens) break;
    if constexpr (!kSwiglu) {
      if (row < a.w.rows) a.y[static_cast<size_t>(m) * a.ldy + row] = y[m];
    } else if (tile % 2 == 0) {
      gate[m] = y[m];
    } else {
      const uint32_t group = tile / 2, groups = a.w.tiles / 2;
      const size_t at = static_cast<size_t>(m) * groups + group;
      quantize_group(silu_times(gate[m], y[m]), lane, a.act.q + at * kGroup, a.act.scale + at, a.act.sum + at);
    }
  }
}

template <WeightFormat F, int M, bool kSwiglu>
__global__ void __launch_bounds__((kMaxProducers + 1) * kWarp, 1) gemv_kernel(const GemvArgs a) {
  extern __shared__ __align__(16) uint8_t memory[];
  const Shared<M> s(memory, a.w.chunks, a.producers);
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t per_iteration = a.producers * kChunkGroups;
  const uint32_t iterations = (a.w.chunks + a.producers - 1) / a.producers;
  const auto chunk_at = [&](const Cursor<kSwiglu>& at) { return at.it * a.producers + warp; };
  const auto load = [&](const Cursor<kSwiglu>& at, Chunk<F>& c) {
    if (at.tile < a.w.tiles && chunk_at(at) < a.w.chunks)
      c.load(a.w.data + (static_cast<size_t>(at.tile) * a.w.chunks + chunk_at(at)) * chunk_bytes(F), lane);
  };
  const auto prefetch = [&](const Cursor<kSwiglu>& at) {
    if (at.tile < a.w.tiles && chunk_at(at) < a.w.chunks)
      prefetch_l2<chunk_bytes(F)>(
          a.w.data + (static_cast<size_t>(at.tile) * a.w.chunks + chunk_at(at)) * chunk_bytes(F), lane);
  };
  Cursor<kSwiglu> at{blockIdx.x * (kSwiglu ? 2 : 1), 0};
  const bool producer = warp < a.producers;
  Chunk<F> current;
  if (producer) load(at, current);  // weights do not depend on the kernel before
  Cursor<kSwiglu> far = at;
  for (uint32_t i = 0; producer && i < a.ahead; ++i) {
    far.advance(iterations);
    prefetch(far);
  }
  let_next_start();
  wait_for_previous();
  fill<F, M>(a, s);
  __syncthreads();
  if (producer) {
    for (uint32_t buf = 0; at.tile < a.w.tiles; buf ^= 1) {
      Cursor<kSwiglu> next = at;
      next.advance(iterations);
      Chunk<F> upcoming;
      load(next, upcoming);
      far.advance(iterations);
      prefetch(far);
      const uint32_t chunk = chunk_at(at);
      if (chunk < a.w.chunks)
        produce<F, M>(current, s, a.w.chunks, chunk, buf * per_iteration + warp * kChunkGroups, lane);
      __syncthreads();
      at = next;
      current = upcoming;
    }
    return;
  }
  float y[M] = {}, gate[M] = {};
  for (uint32_t buf = 0; at.tile < a.w.tiles; buf ^= 1) {
    __syncthreads();
    const uint32_t first = at.it * per_iteration;
    chain<F, M>(s, a.w.chunks * kChunkGroups, first, min(per_iteration, a.w.groups - first), buf * per_iteration, lane,
                y);
    if (at.it + 1 == iterations) {
      store<F, M, kSwiglu>(a, at.tile, lane, y, gate);
#pragma unroll
      for (int m = 0; m < M; ++m) y[m] = 0.0f;
    }
    at.advance(iterations);
  }
}

// Warps that share the chunks of a tile: few idle in its last iteration, and enough in flight where tiles are few.
uint32_t choose_producers(uint32_t chunks, uint32_t units, uint32_t multiprocessors) {
  const uint32_t most = units <= 2 * multiprocessors ? kMaxProducers : 8;
  uint32_t best = 1;
  double best_use = 0.0;
  for (uint32_t p = std::min(most, chunks); p >= std::min(4u, chunks) && p > 0; --p) {
    const double use = static_cast<double>(chunks) / (p * ((chunks + p - 1) / p));
    if (use > best_use + 0.03) best = p, best_use = use;
  }
  return best;
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

// Bytes of a block's stream that are asked into L2 before they are loaded. What is asked for before the block waits for
// the previous kernel fills the gap between the two.
constexpr size_t kAheadBytes = 64 << 10;

template <WeightFormat F, int M, bool kSwiglu>
void run(GemvArgs a, cudaStream_t stream) {
  const Device& dev = device();
  const uint32_t units = a.w.tiles / (kSwiglu ? 2 : 1);
  a.producers = choose_producers(a.w.chunks, units, static_cast<uint32_t>(dev.multiprocessors));
  a.ahead = static_cast<uint32_t>(kAheadBytes / (a.producers * chunk_bytes(F)));
  const size_t shared = Shared<M>::bytes(a.w.chunks, a.producers);
  const int threads = static_cast<int>((a.producers + 1) * kWarp);
  const auto kernel = gemv_kernel<F, M, kSwiglu>;
  thread_local int allowed_on = -1;
  if (allowed_on != dev.id) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dev.shared), "gemv_wxa8");
    allowed_on = dev.id;
  }
  int resident = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, shared), "gemv_wxa8");
  if (resident == 0) throw CudaError(message("gemv_wxa8: k ", a.w.k, " needs ", shared, " bytes of shared memory"));
  // As many blocks as share the units evenly.
  const uint32_t most = static_cast<uint32_t>(resident * dev.multiprocessors), each = (units + most - 1) / most;
  const uint32_t grid = (units + each - 1) / each;
  launch("gemv_wxa8", kernel, {grid, 1, static_cast<unsigned>(threads), shared}, stream, a);
}

template <WeightFormat F, bool kSwiglu>
void run_tokens(const GemvArgs& a, cudaStream_t stream) {
  if (a.tokens == 1) return run<F, 1, kSwiglu>(a, stream);
  if (a.tokens == 2) return run<F, 2, kSwiglu>(a, stream);
  if (a.tokens <= 4) return run<F, 4, kSwiglu>(a, stream);
  run<F, 8, kSwiglu>(a, stream);
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

DeviceRows from(const DeviceRows& rows, uint32_t token, uint32_t k) {
  const size_t group = static_cast<size_t>(token) * (k / kGroup);
  return {rows.q + static_cast<size_t>(token) * k, rows.scale + group, rows.sum + group};
}

// Tokens whose activations fit a block's shared memory beside the buffers: all 8 up to k of 12,000 on an H200.
uint32_t tokens_at_once(uint32_t chunks) {
  uint32_t tokens = kMaxGemvTokens;
  const auto needs = [&](uint32_t m) {
    return m * chunks * (kChunkGroups * sizeof(float4) + kChunkK) + 2 * kBufferGroups * kWarp * 4 * (m + 1);
  };
  while (tokens > 1 && needs(tokens) > static_cast<size_t>(device().shared)) tokens /= 2;
  return tokens;
}

}  // namespace

void gemv_wxa8(const WeightView& w, uint32_t tokens, const DeviceRows& x, float* y, uint32_t ldy, cudaStream_t stream) {
  const uint32_t step = tokens_at_once(w.chunks);
  for (uint32_t t = 0; t < tokens; t += step)
    run_format<false>({w, from(x, t, w.k), std::min(step, tokens - t), 0, 0, y + static_cast<size_t>(t) * ldy, ldy, {}},
                      stream);
}

void gemv_swiglu(const WeightView& w, uint32_t tokens, const DeviceRows& x, const DeviceRows& act,
                 cudaStream_t stream) {
  const uint32_t step = tokens_at_once(w.chunks);
  for (uint32_t t = 0; t < tokens; t += step)
    run_format<true>({w, from(x, t, w.k), std::min(step, tokens - t), 0, 0, nullptr, 0, from(act, t, w.rows / 2)},
                     stream);
}

}  // namespace intattention::cuda
