// The arithmetic of a GEMV's chunk, and what a block keeps in shared memory.
#pragma once

#include <cuda_fp16.h>

#include "async.cuh"
#include "device_math.cuh"
#include "kernels.h"

namespace intattention::cuda {

// A chunk as it lies in memory (device_weights.h). A lane is a row: it copies, reads and multiplies its own bytes only.
template <WeightFormat F>
struct ChunkSlot {
  static constexpr uint32_t kWords = F == WeightFormat::kW8G32 ? 2 : 1;  // of 16 bytes per group and row
  static constexpr uint32_t kScales = F == WeightFormat::kW4G32A ? 2 : 1;
  uint4 q[kChunkGroups][kWords][kWarp];
  uint2 scales[kScales][kWarp];  // d, mn: 4 of f16
};

// What the chain adds up for one chunk.
template <WeightFormat F, int M>
struct Terms {
  float4 t[M][kWarp];
  uint2 scales[ChunkSlot<F>::kScales][kWarp];
};

template <WeightFormat F, int M>
struct GemvShared {
  static constexpr bool kHasMin = F == WeightFormat::kW4G32A;
  ChunkSlot<F>* slots;  // [producer][slot]
  Terms<F, M>* terms;   // [round][producer]
  uint4* x;             // [M][chunks * 8]
  float4* sx;           // [M][chunks]
  int4* sum;            // [M][chunks], if kHasMin
  float* done;          // [2][M][gate, up][lane]: sums of a unit on their way to the finisher

  __device__ GemvShared(uint8_t* memory, uint32_t slot_count, uint32_t term_count, uint32_t chunks) {
    slots = reinterpret_cast<ChunkSlot<F>*>(memory);
    terms = reinterpret_cast<Terms<F, M>*>(slots + slot_count);
    x = reinterpret_cast<uint4*>(terms + term_count);
    sx = reinterpret_cast<float4*>(x + M * chunks * (kChunkK / 16));
    sum = reinterpret_cast<int4*>(sx + M * chunks);
    done = reinterpret_cast<float*>(sum + (kHasMin ? M * chunks : 0));
  }
  __device__ float& sum_of(uint32_t unit, int m, uint32_t is_up, uint32_t lane) const {
    return done[((unit % 2 * M + m) * 2 + is_up) * kWarp + lane];
  }
  static size_t bytes(uint32_t slot_count, uint32_t term_count, uint32_t chunks) {
    return slot_count * sizeof(ChunkSlot<F>) + term_count * sizeof(Terms<F, M>) +
           M * chunks * (kChunkK + sizeof(float4) + (kHasMin ? sizeof(int4) : 0)) + 2 * M * 2 * kWarp * sizeof(float);
  }
};

// Calls store(i, load(i)) for i < n, all threads together; several loads are on their way at once.
template <typename Load, typename Store>
__device__ inline void transfer(uint32_t n, const Load& load, const Store& store) {
  constexpr uint32_t kAtOnce = 4;
  for (uint32_t first = threadIdx.x; first < n; first += kAtOnce * blockDim.x) {
    uint4 v[kAtOnce];
#pragma unroll
    for (uint32_t u = 0; u < kAtOnce; ++u)
      if (first + u * blockDim.x < n) v[u] = load(first + u * blockDim.x);
#pragma unroll
    for (uint32_t u = 0; u < kAtOnce; ++u)
      if (first + u * blockDim.x < n) store(first + u * blockDim.x, v[u]);
  }
}

// Brings the activations in: 16 bytes of q, or the scale (and the sum) of a group at a time. Groups beyond k and tokens
// beyond the last are zeros.
template <WeightFormat F, int M>
__device__ inline void fill(const WeightView& w, const DeviceRows& rows, uint32_t tokens, const GemvShared<F, M>& s) {
  const uint32_t vectors = w.chunks * kChunkK / 16, groups = w.chunks * kChunkGroups;
  transfer(
      M * (vectors + groups),
      [&](uint32_t i) {
        uint4 v{};
        if (i < M * vectors) {
          const uint32_t m = i / vectors, piece = i % vectors;
          if (m < tokens && piece * 16 < w.k)
            v = reinterpret_cast<const uint4*>(rows.q + static_cast<size_t>(m) * w.k)[piece];
        } else {
          const uint32_t m = (i - M * vectors) / groups, g = (i - M * vectors) % groups;
          if (m < tokens && g < w.groups) {
            v.x = __float_as_uint(rows.scale[m * w.groups + g]);
            if (GemvShared<F, M>::kHasMin) v.y = static_cast<uint32_t>(rows.sum[m * w.groups + g]);
          }
        }
        return v;
      },
      [&](uint32_t i, const uint4& v) {
        if (i < M * vectors) {
          s.x[i] = v;
          return;
        }
        reinterpret_cast<float*>(s.sx)[i - M * vectors] = __uint_as_float(v.x);
        if (GemvShared<F, M>::kHasMin) reinterpret_cast<int*>(s.sum)[i - M * vectors] = static_cast<int>(v.y);
      });
}

__device__ inline int dot_nibbles(uint32_t v, uint32_t low, uint32_t high, int sum) {
  sum = dot4((v << 4) & 0xf0f0f0f0u, low, sum);
  return dot4(v & 0xf0f0f0f0u, high, sum);
}

// low: elements 0..15 of the group of activations, high: 16..31.
template <WeightFormat F>
__device__ inline int group_dot(const uint4 (&q)[ChunkSlot<F>::kWords], const uint4& low, const uint4& high, int sum) {
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

template <typename Four>
__device__ inline auto& element(Four& v, uint32_t i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// A lane's part of a chunk in registers.
template <WeightFormat F>
struct ChunkRow {
  uint4 q[kChunkGroups][ChunkSlot<F>::kWords];
  uint2 scales[ChunkSlot<F>::kScales];

  __device__ ChunkRow(const ChunkSlot<F>& slot, uint32_t lane) {
#pragma unroll
    for (uint32_t g = 0; g < kChunkGroups; ++g)
#pragma unroll
      for (uint32_t h = 0; h < ChunkSlot<F>::kWords; ++h) q[g][h] = slot.q[g][h][lane];
#pragma unroll
    for (uint32_t h = 0; h < ChunkSlot<F>::kScales; ++h) scales[h] = slot.scales[h][lane];
  }
};

// t = sx * isum of the 4 groups. isum starts at the bits of 1.5 * 2^23, so that read as a float it is 1.5 * 2^23 +
// isum, and t is one fused multiply-add with a single rounding (kernel_table.h). The nibbles are 16 * (q - 8)
// (device_weights.h), so sx is divided by 16, exactly; w4g32a wants the sum with q, which starts 8 * xsum higher.
template <WeightFormat F, int M>
__device__ inline void multiply(const ChunkRow<F>& w, const GemvShared<F, M>& s, uint32_t chunks, uint32_t chunk,
                                uint32_t lane, Terms<F, M>& out) {
  float4 t[M];
#pragma unroll
  for (uint32_t g = 0; g < kChunkGroups; ++g) {
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const uint32_t at = m * chunks + chunk;
      const uint4* x = s.x + (at * kChunkGroups + g) * 2;
      const float sx = reinterpret_cast<const float*>(s.sx)[at * kChunkGroups + g];
      const float unit = F == WeightFormat::kW8G32 ? sx : sx * 0.0625f;
      int start = kSumStart;
      if constexpr (GemvShared<F, M>::kHasMin)
        start += 128 * reinterpret_cast<const int*>(s.sum)[at * kChunkGroups + g];
      const int sum = group_dot<F>(w.q[g], x[0], x[1], start);
      element(t[m], g) = fmaf(__int_as_float(sum), unit, -kSumStartValue * unit);
    }
  }
#pragma unroll
  for (int m = 0; m < M; ++m) out.t[m][lane] = t[m];
#pragma unroll
  for (uint32_t h = 0; h < ChunkSlot<F>::kScales; ++h) out.scales[h][lane] = w.scales[h];
}

__device__ inline float half_of(const uint2& v, uint32_t i) {
  const uint32_t word = i < 2 ? v.x : v.y;
  return __half2float(__ushort_as_half(static_cast<uint16_t>(i % 2 == 0 ? word & 0xffffu : word >> 16)));
}

// What a lane adds up, of kChunks chunks: all of it is read before the first addition, which the next waits for.
template <WeightFormat F, int M, int kChunks>
struct TermRow {
  float4 t[kChunks][M];
  uint2 scales[kChunks][ChunkSlot<F>::kScales];

  __device__ TermRow(const Terms<F, M>* terms, uint32_t lane) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int m = 0; m < M; ++m) t[c][m] = terms[c].t[m][lane];
#pragma unroll
      for (uint32_t h = 0; h < ChunkSlot<F>::kScales; ++h) scales[c][h] = terms[c].scales[h][lane];
    }
  }
  // y += group g of chunk c, which is chunk `chunk` of the row.
  __device__ void add(int c, uint32_t g, const GemvShared<F, M>& s, uint32_t chunks, uint32_t chunk,
                      float (&y)[M]) const {
#pragma unroll
    for (int m = 0; m < M; ++m) {
      y[m] = fmaf(half_of(scales[c][0], g), element(t[c][m], g), y[m]);
      if constexpr (GemvShared<F, M>::kHasMin) {
        const uint32_t at = (m * chunks + chunk) * kChunkGroups + g;
        const float xsum =
            reinterpret_cast<const float*>(s.sx)[at] * static_cast<float>(reinterpret_cast<const int*>(s.sum)[at]);
        y[m] = fmaf(half_of(scales[c][1], g), xsum, y[m]);
      }
    }
  }
  // y += all groups, in order; `chunk` is the first.
  __device__ void add_all(const GemvShared<F, M>& s, uint32_t chunks, uint32_t chunk, float (&y)[M]) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (uint32_t g = 0; g < kChunkGroups; ++g) add(c, g, s, chunks, chunk + c, y);
  }
  // y += the first `groups` groups of the first chunk.
  __device__ void add_groups(uint32_t groups, const GemvShared<F, M>& s, uint32_t chunks, uint32_t chunk,
                             float (&y)[M]) const {
#pragma unroll
    for (uint32_t g = 0; g < kChunkGroups; ++g)
      if (g < groups) add(0, g, s, chunks, chunk, y);
  }
};

}  // namespace intattention::cuda
