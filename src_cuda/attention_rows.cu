// Attention of many tokens: a block of 256 threads walks all keys of 8 query rows of one kv head.
#include "attention_block.cuh"
#include "launch.h"

namespace intattention::cuda {
namespace {

// Row states in shared memory; the outputs [row][head_dim] lie in registers, element i * 256 + thread.
struct WalkShared {
  AttentionShared block;
  RowState range[kAttentionRows], total[kAttentionRows];
  float a[kAttentionRows], b[kAttentionRows];
  bool used[kAttentionRows];
  float vector[kAttentionRows * kMaxDeviceHeadDim];
};

constexpr uint32_t kPerThread = kAttentionRows * kMaxDeviceHeadDim / kAttentionThreads;
constexpr uint32_t kBlocksPerRange = kKeyRange / kKeyBlock;

// Calls f(i, row, channel) for the thread's elements; i is a constant after unrolling.
template <typename F>
__device__ inline void for_own(uint32_t rows, uint32_t d, const F& f) {
#pragma unroll
  for (uint32_t i = 0; i < kPerThread; ++i) {
    const uint32_t index = i * kAttentionThreads + threadIdx.x;
    if (index < rows * d) f(i, index / d, index % d);
  }
}

__device__ inline void add_block(const AttentionArgs& a, const RowSpan& span, uint32_t block, WalkShared& s,
                                 float (&out)[kPerThread]) {
  const uint32_t d = a.cache.head_dim, row = threadIdx.x;
  if (row < span.count) {
    const BlockResult& result = s.block.result[row];
    s.used[row] = !s.range[row].drops(result.max);
    if (s.used[row]) s.range[row].take(result.max, result.sum, s.a[row], s.b[row]);
  }
  __syncthreads();
  const size_t offset = static_cast<size_t>(span.kv_head) * a.cache.capacity + block * kKeyBlock;
  for_own(span.count, d, [&](uint32_t i, uint32_t r, uint32_t c) {
    if (!s.used[r]) return;
    out[i] = out[i] * s.a[r] + static_cast<float>(s.block.out[r * d + c]) * s.b[r];
    const BlockResult& result = s.block.result[r];
    if (!result.light) return;
    const uint32_t keys = within(s.block.rows[r].end, block * kKeyBlock);
    for (uint32_t j = 0; j < keys; ++j) {
      const uint32_t e = reinterpret_cast<const uint8_t*>(s.block.probs[r])[j];
      const int v_log = a.cache.v_log[offset + j];
      if (e == 0 || v_log >= result.lowest) continue;
      const float v = static_cast<float>(a.cache.v[offset * d + v_offset(j, c, d)]);
      out[i] = out[i] + v * -surplus(e, v_log, result.lowest, s.b[r]);
    }
  });
}

__device__ inline void add_range(const RowSpan& span, uint32_t d, WalkShared& s, float (&out)[kPerThread],
                                 float (&total)[kPerThread]) {
  __syncthreads();
  const uint32_t row = threadIdx.x;
  if (row < span.count) {
    const RowState range = s.range[row];
    s.used[row] = range.max != kNoMax;
    if (s.used[row]) s.total[row].take(range.max, range.sum, s.a[row], s.b[row]);
    s.range[row] = RowState::empty();
  }
  __syncthreads();
  for_own(span.count, d, [&](uint32_t i, uint32_t r, uint32_t) {
    if (s.used[r]) total[i] = total[i] * s.a[r] + out[i] * s.b[r];
    out[i] = 0.0f;
  });
}

__device__ inline void store(const AttentionArgs& a, const RowSpan& span, WalkShared& s,
                             const float (&total)[kPerThread]) {
  const uint32_t d = a.cache.head_dim;
  for_own(span.count, d, [&](uint32_t i, uint32_t r, uint32_t c) {
    const float sum = s.total[r].sum;
    s.vector[r * d + c] = total[i] * (sum > 0.0f ? __fdiv_rn(a.one, sum) : 0.0f);
  });
  for (uint32_t half = 1; half < a.rotation; half *= 2) {
    __syncthreads();
    for (uint32_t pair = threadIdx.x; pair < span.count * d / 2; pair += kAttentionThreads) {
      const uint32_t first = pair / half * 2 * half + pair % half;
      const float x = s.vector[first], y = s.vector[first + half];
      s.vector[first] = x + y;
      s.vector[first + half] = x - y;
    }
  }
  __syncthreads();
  const uint32_t heads = a.group * a.cache.kv_heads;
  for_own(span.count, d, [&](uint32_t, uint32_t r, uint32_t c) {
    const uint32_t token = (span.first + r) / a.group, head = span.kv_head * a.group + (span.first + r) % a.group;
    a.out[(static_cast<size_t>(token) * heads + head) * d + c] = s.vector[r * d + c];
  });
}

__global__ void __launch_bounds__(kAttentionThreads) attention_rows_kernel(const AttentionArgs a) {
  __shared__ WalkShared s;
  let_next_start();
  wait_for_previous();
  const uint32_t rows = a.tokens * a.group;
  // Later rows see more keys; they start first.
  const uint32_t first = (gridDim.x - 1 - blockIdx.x) * kAttentionRows;
  const RowSpan span{blockIdx.y, first, min(kAttentionRows, rows - first)};
  load_tables(a, s.block);
  load_rows(a, span, s.block);
  if (threadIdx.x < kAttentionRows) s.range[threadIdx.x] = s.total[threadIdx.x] = RowState::empty();
  __syncthreads();
  float out[kPerThread] = {}, total[kPerThread] = {};
  const uint32_t d = a.cache.head_dim, blocks = (s.block.rows[span.count - 1].end + kKeyBlock - 1) / kKeyBlock;
  uint32_t block = s.block.rows[0].begin / kKeyBlock;  // the first row's window reaches furthest back
  for (; block < blocks; ++block) {
    const uint32_t start = block * kKeyBlock;
    const CachePieces cache(a.cache, span.kv_head, start, visible_keys(span, start, s.block));
    attend_block<kAttentionRows>(a, span, block, cache, s.block);
    add_block(a, span, block, s, out);
    if ((block + 1) % kBlocksPerRange == 0 || block + 1 == blocks) add_range(span, d, s, out, total);
  }
  store(a, span, s, total);
}

}  // namespace

void attention_rows(const AttentionArgs& args, cudaStream_t stream) {
  const uint32_t spans = (args.tokens * args.group + kAttentionRows - 1) / kAttentionRows;
  launch("attention_rows", attention_rows_kernel, {spans, args.cache.kv_heads, kAttentionThreads}, stream, args);
}

}  // namespace intattention::cuda
