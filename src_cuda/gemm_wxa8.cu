// Many rows of int8 activations against int4 or int8 weights on the tensor cores: prefill.
//
// mma.m16n8k32.s8 multiplies exactly one group of 32, so its s32 sums are what section 6 of docs/numerics.md rounds,
// and a warp adds the groups up in order of k. m = tokens, n = rows of the weights:
//
//                  n: 64 of the block's 128 rows of weights
//   m: 32 tokens | 2 x 8 accumulators of 16 x 8 |      of a warp; a block is 2 x 2 warps
//
// Operands come through shared memory, kStages chunks of 4 groups (128 k) deep, by cp.async. Everything lies there in
// pieces of 16 bytes, row by row ([group][half][row][16]), so that the 8 rows x 4 words of a fragment are 128 bytes in
// a line: no bank is asked twice.
//
// The C operand is the bits of 1.5 * 2^23 (gemv_wxa8.cu says why): the conversion of a sum costs one multiply-add.
#include <cuda_fp16.h>

#include <algorithm>

#include "async.cuh"
#include "device_math.cuh"
#include "kernels.h"
#include "launch.h"

namespace intattention::cuda {
namespace {

constexpr uint32_t kStages = 3;
constexpr uint32_t kBlockM = 64, kBlockN = 128;
constexpr uint32_t kWarpsM = 2, kWarpsN = 2;
constexpr uint32_t kTilesM = kBlockM / kWarpsM / 16, kTilesN = kBlockN / kWarpsN / 8;
constexpr uint32_t kThreads = kWarpsM * kWarpsN * kWarp;

struct GemmArgs {
  WeightView w;
  DeviceRows x;
  uint32_t tokens;
  float* y;
  uint32_t ldy;
};

// One stage of shared memory.
template <WeightFormat F>
struct Stage {
  static constexpr uint32_t kTiles = kBlockN / kRowTile;
  uint8_t x[kChunkGroups][2][kBlockM][16];
  uint8_t chunk[kTiles][chunk_bytes(F)];  // as in memory
  float scale[kBlockM][kChunkGroups];
  int32_t sum[kBlockM][kChunkGroups];
};

template <WeightFormat F>
__device__ void fetch_weights(const GemmArgs& a, uint32_t tile0, uint32_t chunk, Stage<F>& s) {
  constexpr uint32_t kPieces = chunk_bytes(F) / 16;
  for (uint32_t i = threadIdx.x; i < Stage<F>::kTiles * kPieces; i += kThreads) {
    const uint32_t tile = i / kPieces, piece = i % kPieces;
    const bool there = tile0 + tile < a.w.tiles;
    const size_t from = (static_cast<size_t>(there ? tile0 + tile : 0) * a.w.chunks + chunk) * chunk_bytes(F);
    copy_async<16>(&s.chunk[tile][piece * 16], a.w.data + from + piece * 16, there);
  }
}

template <WeightFormat F>
__device__ void fetch_activations(const GemmArgs& a, uint32_t token0, uint32_t chunk, Stage<F>& s) {
  for (uint32_t i = threadIdx.x; i < kBlockM * kChunkK / 16; i += kThreads) {
    const uint32_t row = i / (kChunkK / 16), piece = i % (kChunkK / 16), k = chunk * kChunkK + piece * 16;
    const bool there = token0 + row < a.tokens && k < a.w.k;
    copy_async<16>(s.x[piece / 2][piece % 2][row], a.x.q + (there ? static_cast<size_t>(token0 + row) * a.w.k + k : 0),
                   there);
  }
  for (uint32_t i = threadIdx.x; i < kBlockM * kChunkGroups; i += kThreads) {
    const uint32_t row = i / kChunkGroups, g = i % kChunkGroups, group = chunk * kChunkGroups + g;
    const bool there = token0 + row < a.tokens && group < a.w.groups;
    const size_t from = there ? static_cast<size_t>(token0 + row) * a.w.groups + group : 0;
    copy_async<4>(&s.scale[row][g], a.x.scale + from, there);
    copy_async<4>(&s.sum[row][g], a.x.sum + from, there);
  }
}

__device__ inline void mma(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int c_low, int c_high) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %10, %11, %11};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c_low), "r"(c_high));
}

// The lane's rows of the warp's 32: what turns their sums into floats.
struct RowFactors {
  float unit[kTilesM][2], bias[kTilesM][2], min_part[kTilesM][2];
  int start[kTilesM][2];

  template <WeightFormat F>
  __device__ void load(const Stage<F>& s, uint32_t first_row, uint32_t g) {
#pragma unroll
    for (uint32_t i = 0; i < kTilesM; ++i)
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) {
        const uint32_t row = first_row + i * 16 + h * 8;
        const float sx = s.scale[row][g];
        unit[i][h] = F == WeightFormat::kW8G32 ? sx : sx * 0.0625f;
        bias[i][h] = -kSumStartValue * unit[i][h];
        start[i][h] = kSumStart;
        if (F != WeightFormat::kW4G32A) continue;
        start[i][h] = kSumStart + 128 * s.sum[row][g];
        min_part[i][h] = sx * static_cast<float>(s.sum[row][g]);
      }
  }
};

__device__ inline float load_half(const uint8_t* p) { return __half2float(*reinterpret_cast<const __half*>(p)); }

template <WeightFormat F>
__device__ void multiply_group(const Stage<F>& s, uint32_t g, uint32_t warp_m, uint32_t warp_n, uint32_t lane,
                               float (&y)[kTilesM][kTilesN][4]) {
  const uint32_t quad = lane / 4, t = lane % 4;
  uint32_t a[kTilesM][4];
#pragma unroll
  for (uint32_t i = 0; i < kTilesM; ++i)
#pragma unroll
    for (uint32_t piece = 0; piece < 4; ++piece)
      a[i][piece] = *reinterpret_cast<const uint32_t*>(
          &s.x[g][piece / 2][(warp_m * kTilesM + i) * 16 + piece % 2 * 8 + quad][t * 4]);
  RowFactors rows;
  rows.template load<F>(s, warp_m * kTilesM * 16 + quad, g);
#pragma unroll
  for (uint32_t j = 0; j < kTilesN; ++j) {
    const uint32_t row = (warp_n * kTilesN + j) * 8, in_tile = row % kRowTile;
    const uint8_t* chunk = s.chunk[row / kRowTile];
    const uint8_t* quants = chunk + g * quant_bytes(F) + (in_tile + quad) * 16 + t * 4;
    uint32_t b0 = *reinterpret_cast<const uint32_t*>(quants), b1;
    if (F == WeightFormat::kW8G32) {
      b1 = *reinterpret_cast<const uint32_t*>(quants + 512);
    } else {
      b1 = b0 & 0xf0f0f0f0u;
      b0 = (b0 << 4) & 0xf0f0f0f0u;
    }
    const uint8_t* scales = chunk + kChunkGroups * quant_bytes(F) + (in_tile + t * 2) * 8 + g * 2;
    const float d[2] = {load_half(scales), load_half(scales + 8)};
#pragma unroll
    for (uint32_t i = 0; i < kTilesM; ++i) {
      int sum[4];
      mma(sum, a[i], b0, b1, rows.start[i][0], rows.start[i][1]);
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) {
        float& to = y[i][j][e];
        to = fmaf(d[e % 2], fmaf(__int_as_float(sum[e]), rows.unit[i][e / 2], rows.bias[i][e / 2]), to);
        if (F == WeightFormat::kW4G32A) to = fmaf(load_half(scales + 256 + e % 2 * 8), rows.min_part[i][e / 2], to);
      }
    }
  }
}

template <WeightFormat F>
__device__ void store(const GemmArgs& a, uint32_t token0, uint32_t row0, uint32_t warp_m, uint32_t warp_n,
                      uint32_t lane, const float (&y)[kTilesM][kTilesN][4]) {
#pragma unroll
  for (uint32_t i = 0; i < kTilesM; ++i)
#pragma unroll
    for (uint32_t j = 0; j < kTilesN; ++j)
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) {
        const uint32_t token = token0 + (warp_m * kTilesM + i) * 16 + e / 2 * 8 + lane / 4;
        const uint32_t row = row0 + (warp_n * kTilesN + j) * 8 + lane % 4 * 2 + e % 2;
        if (token < a.tokens && row < a.w.rows) a.y[static_cast<size_t>(token) * a.ldy + row] = y[i][j][e];
      }
}

template <WeightFormat F>
__global__ void __launch_bounds__(kThreads) gemm_kernel(const GemmArgs a) {
  extern __shared__ __align__(16) uint8_t memory[];
  Stage<F>* stages = reinterpret_cast<Stage<F>*>(memory);
  // Blocks of one column of the grid share weights: they run together and find them in L2.
  const uint32_t token0 = blockIdx.x * kBlockM, row0 = blockIdx.y * kBlockN;
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t warp_m = warp / kWarpsN, warp_n = warp % kWarpsN;
  let_next_start();
  wait_for_previous();
  const auto fetch = [&](uint32_t chunk) {
    if (chunk < a.w.chunks) {
      fetch_weights<F>(a, row0 / kRowTile, chunk, stages[chunk % kStages]);
      fetch_activations<F>(a, token0, chunk, stages[chunk % kStages]);
    }
    commit_copies();
  };
  float y[kTilesM][kTilesN][4] = {};
#pragma unroll
  for (uint32_t i = 0; i + 1 < kStages; ++i) fetch(i);
  for (uint32_t chunk = 0; chunk < a.w.chunks; ++chunk) {
    wait_for_copies<kStages - 2>();
    __syncthreads();  // the chunk is here, and its predecessor's stage is free
    fetch(chunk + kStages - 1);
    const uint32_t groups = min(kChunkGroups, a.w.groups - chunk * kChunkGroups);
    for (uint32_t g = 0; g < groups; ++g) multiply_group<F>(stages[chunk % kStages], g, warp_m, warp_n, lane, y);
  }
  store<F>(a, token0, row0, warp_m, warp_n, lane, y);
}

template <WeightFormat F>
void run(const GemmArgs& a, cudaStream_t stream) {
  constexpr size_t kShared = kStages * sizeof(Stage<F>);
  static_assert(sizeof(Stage<F>) % 16 == 0, "stages are copied to in pieces of 16 bytes");
  check(cudaFuncSetAttribute(gemm_kernel<F>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kShared)),
        "gemm_wxa8");
  const uint32_t m = (a.tokens + kBlockM - 1) / kBlockM, n = (a.w.rows + kBlockN - 1) / kBlockN;
  launch("gemm_wxa8", gemm_kernel<F>, {m, n, kThreads, kShared}, stream, a);
}

}  // namespace

void gemm_wxa8(const WeightView& w, uint32_t tokens, const DeviceRows& x, float* y, uint32_t ldy, cudaStream_t stream) {
  const GemmArgs args{w, x, tokens, y, ldy};
  switch (w.format) {
    case WeightFormat::kW4G32:
      return run<WeightFormat::kW4G32>(args, stream);
    case WeightFormat::kW4G32A:
      return run<WeightFormat::kW4G32A>(args, stream);
    case WeightFormat::kW8G32:
      return run<WeightFormat::kW8G32>(args, stream);
  }
}

}  // namespace intattention::cuda
