// Attention of one token: every key block is a block of threads of its own, and what they leave is merged in the order
// of section 5 of docs/numerics.md. A block's result is relative to its own maximum, so it does not matter who comes
// first.
#include <algorithm>

#include "attention_block.cuh"
#include "launch.h"

namespace intattention::cuda {
namespace {

constexpr uint32_t kBlocksPerRange = kKeyRange / kKeyBlock;
constexpr uint32_t kRangesAtOnce = 4;

struct MergeShared {
  RowState state[kRangesAtOnce];
  float out[kRangesAtOnce][kMaxDeviceHeadDim];
  float scratch[kRangesAtOnce * kMaxDeviceHeadDim];
};

// Channel c of a range of one head: all four blocks are on their way before the first is used.
__device__ inline float merge_range(const AttentionArgs& a, const AttentionParts& parts, uint32_t head, uint32_t range,
                                    uint32_t blocks, uint32_t c, RowState& state) {
  const uint32_t d = a.cache.head_dim, first = range * kBlocksPerRange;
  const size_t at = static_cast<size_t>(head) * parts.blocks + first;
  int4 result[kBlocksPerRange];
  int sum[kBlocksPerRange];
#pragma unroll
  for (uint32_t b = 0; b < kBlocksPerRange; ++b) {
    const bool there = first + b < blocks;
    result[b] = there ? __ldcg(parts.head + at + b) : int4{kNoMax, 0, 0, 0};
    sum[b] = there ? __ldcg(parts.out + (at + b) * d + c) : 0;
  }
  float out = 0.0f;
#pragma unroll
  for (uint32_t b = 0; b < kBlocksPerRange; ++b) {
    if (state.drops(result[b].x)) continue;
    float before, weight;
    state.take(result[b].x, __int_as_float(result[b].y), before, weight);
    out = out * before + static_cast<float>(sum[b]) * weight;
    if (result[b].w == 0) continue;
    const size_t key = static_cast<size_t>(head / a.group) * a.cache.capacity + (first + b) * kKeyBlock;
    const uint32_t keys = within(static_cast<uint32_t>(a.state->position) + 1, (first + b) * kKeyBlock);
    for (uint32_t j = 0; j < keys; ++j) {
      const uint32_t e = __ldcg(parts.weights + (at + b) * kKeyBlock + j);
      const int v_log = __ldcg(a.cache.v_log + key + j);
      if (e == 0 || v_log >= result[b].z) continue;
      const float v = static_cast<float>(a.cache.v[key * d + v_offset(j, c, d)]);
      out = out + v * -surplus(e, v_log, result[b].z, weight);
    }
  }
  return out;
}

// One query head, by the whole block; thread (one of `at_once` ranges, channel), `width` threads a range.
__device__ inline void merge_head(const AttentionArgs& a, const AttentionParts& parts, const DeviceRows& act,
                                  uint32_t head, uint32_t blocks, uint32_t width, uint32_t at_once, MergeShared& s) {
  const uint32_t d = a.cache.head_dim, own = threadIdx.x / width, c = threadIdx.x % width;
  const uint32_t ranges = (blocks + kBlocksPerRange - 1) / kBlocksPerRange;
  RowState total = RowState::empty();
  float out = 0.0f;
  for (uint32_t first = 0; first < ranges; first += at_once) {
    RowState state = RowState::empty();
    const bool works = own < at_once && first + own < ranges;
    if (works && c < d) s.out[own][c] = merge_range(a, parts, head, first + own, blocks, c, state);
    if (works && c == 0) s.state[own] = state;
    __syncthreads();
    if (own == 0 && c < d)
      for (uint32_t r = 0; r < at_once && first + r < ranges; ++r) {
        if (s.state[r].max == kNoMax) continue;
        float before, weight;
        total.take(s.state[r].max, s.state[r].sum, before, weight);
        out = out * before + s.out[r][c] * weight;
      }
    __syncthreads();
  }
  const float x = rotate(own == 0 && c < d ? out * (total.sum > 0.0f ? __fdiv_rn(a.one, total.sum) : 0.0f) : 0.0f,
                         a.rotation, s.scratch);
  if (threadIdx.x >= d) return;
  a.out[head * d + threadIdx.x] = x;
  if (d % kGroup != 0) return;  // a group of 32 straddles heads
  const uint32_t group = (head * d + threadIdx.x) / kGroup;
  quantize_group(x, threadIdx.x % kWarp, act.q + group * kGroup, act.scale + group, act.sum + group);
}

// A block per query head.
__global__ void attention_merge_kernel(const AttentionArgs a, const AttentionParts parts, const DeviceRows act,
                                       uint32_t width) {
  __shared__ MergeShared s;
  const uint32_t blocks = position_of(a.state) / kKeyBlock + 1;
  let_next_start();
  wait_for_previous();
  merge_head(a, parts, act, blockIdx.x, blocks, width, blockDim.x / width, s);
}

// Whether this block is the last of `blocks` to come here; what the others wrote before can then be read from L2.
__device__ inline bool comes_last(uint32_t* arrived, uint32_t blocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(arrived, 1) + 1 == blocks;
    if (last) *arrived = 0;  // for the next launch
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

template <uint32_t R>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_blocks_kernel(const AttentionArgs a, const AttentionParts parts, const DeviceRows act, bool merges) {
  __shared__ AttentionShared s;
  const uint32_t block = blockIdx.x, start = block * kKeyBlock, spans = (a.group + R - 1) / R;
  const uint32_t first = blockIdx.y % spans * R, d = a.cache.head_dim;
  const RowSpan span{blockIdx.y / spans, first, min(R, a.group - first)};
  const uint32_t position = position_of(a.state);
  if (start > position) return;
  // Of the keys only the newest depends on the kernel before.
  CachePieces cache(a.cache, span.kv_head, start, within(position + 1, start));
  load_tables(a, s);
  let_next_start();
  wait_for_previous();
  if (position - start < kKeyBlock) cache.reload(a.cache, span.kv_head, start, position - start);
  load_rows(a, span, s);
  attend_block<R>(a, span, block, cache, s);
  const uint32_t head0 = span.kv_head * a.group + first;
  for (uint32_t i = threadIdx.x; i < span.count * d; i += kAttentionThreads)
    parts.out[(static_cast<size_t>(head0 + i / d) * parts.blocks + block) * d + i % d] = s.out[i];
  for (uint32_t r = 0; r < span.count; ++r) {
    const BlockResult& result = s.result[r];
    const size_t at = static_cast<size_t>(head0 + r) * parts.blocks + block;
    if (threadIdx.x == 0) parts.head[at] = {result.max, __float_as_int(result.sum), result.lowest, result.light};
    if (result.light)
      parts.weights[at * kKeyBlock + threadIdx.x] = reinterpret_cast<const uint8_t*>(s.probs[r])[threadIdx.x];
  }
  const uint32_t blocks = position / kKeyBlock + 1;
  if (!merges || !comes_last(parts.arrived + blockIdx.y, blocks)) return;
  __shared__ MergeShared merged;
  const uint32_t width = (d + kWarp - 1) / kWarp * kWarp;
  for (uint32_t r = 0; r < span.count; ++r)
    merge_head(a, parts, act, head0 + r, blocks, width, min(kRangesAtOnce, kAttentionThreads / width), merged);
}

}  // namespace

void attention_split(const AttentionArgs& args, const AttentionParts& parts, uint32_t blocks, const DeviceRows& act,
                     cudaStream_t stream) {
  // Few keys: a block of threads takes few of a kv head's query rows, so that more of the GPU is at work.
  constexpr uint32_t kBlocksWanted = 256;
  // The last block of a head to end merges, where that is little work; else a kernel of its own does.
  constexpr uint32_t kMergedInPlace = 8;
  uint32_t rows = 1;
  while (rows < kAttentionRows && blocks * args.cache.kv_heads * ((args.group + rows - 1) / rows) > kBlocksWanted)
    rows *= 2;
  const auto kernel = rows == 1   ? attention_blocks_kernel<1>
                      : rows == 2 ? attention_blocks_kernel<2>
                      : rows == 4 ? attention_blocks_kernel<4>
                                  : attention_blocks_kernel<8>;
  const uint32_t heads = args.cache.kv_heads * args.group,
                 spans = args.cache.kv_heads * ((args.group + rows - 1) / rows);
  const bool merges = blocks <= kMergedInPlace;
  launch("attention_split", kernel, {blocks, spans, kAttentionThreads}, stream, args, parts, act, merges);
  if (merges) return;
  const uint32_t width = (args.cache.head_dim + kWarp - 1) / kWarp * kWarp;
  const uint32_t at_once = std::min(kRangesAtOnce, (blocks + kBlocksPerRange - 1) / kBlocksPerRange);
  launch("attention_merge", attention_merge_kernel, {heads, 1, width * at_once}, stream, args, parts, act, width);
}

}  // namespace intattention::cuda
