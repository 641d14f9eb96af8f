// One key block of up to 8 query rows: QK, index softmax, PV (docs/numerics.md sections 3 and 4), in integers until the
// last line. A thread is a key for QK and the softmax, a channel of some of the keys for PV.
#pragma once

#include "cache_pieces.cuh"

namespace intattention::cuda {

constexpr uint32_t kAttentionRows = 8;
constexpr uint32_t kAttentionWarps = kAttentionThreads / kWarp;
constexpr int kContrast = 430;  // kLogScaleContrast

// A query row: which keys it sees, and how its logits are narrowed.
struct QueryRow {
  float scale;
  int narrow;
  uint32_t begin, end;  // of the visible keys, absolute
};

// What a block of keys gives a row.
struct BlockResult {
  int max;     // kNoMax: no visible key
  float sum;   // l_b
  int lowest;  // T: log scales of V below it were raised
  bool light;  // some were
};

struct AttentionShared {
  uint4 q[kAttentionRows][kMaxDeviceHeadDim / 16];
  uint4 probs[kAttentionRows][kKeyBlock / 16];  // E'
  int out[kAttentionRows * kMaxDeviceHeadDim];  // O_b [row][head_dim]
  QueryRow rows[kAttentionRows];
  BlockResult result[kAttentionRows];
  float sum_unit[kAttentionRows];
  int warp_max[kAttentionRows][kAttentionWarps];
  uint32_t warp_sum[kAttentionRows][kAttentionWarps];
  uint32_t warp_scale[kAttentionWarps];
  int warp_high[kAttentionWarps], warp_low[kAttentionWarps];
  uint16_t weights[kContrast + 1];
  uint8_t lut[64];
};

// Rows first .. of one kv head; a row is token * group + head of the group.
struct RowSpan {
  uint32_t kv_head, first, count;
};

__constant__ const uint8_t kLut[64] = {255, 230, 207, 186, 168, 151, 136, 122, 110, 99, 89, 81, 73, 65, 59, 53,
                                       48,  43,  39,  35,  31,  28,  25,  23,  21,  19, 17, 15, 14, 12, 11, 10,
                                       9,   8,   7,   7,   6,   5,   5,   4,   4,   3,  3,  3,  3,  2,  2,  2,
                                       2,   2,   1,   1,   1,   1,   1,   1,   1,   1,  1,  1,  1,  1,  1,  0};

// Half to even for 0 <= x < 2^22.
__device__ inline int rne(float x) { return __float2int_rn(x); }

// Ends without a barrier, as load_rows().
__device__ inline void load_tables(const AttentionArgs& a, AttentionShared& s) {
  for (uint32_t i = threadIdx.x; i <= kContrast; i += kAttentionThreads) s.weights[i] = a.weights[i];
  if (threadIdx.x < 64) s.lut[threadIdx.x] = kLut[threadIdx.x];
}

// Queries, their scales and spans.
__device__ inline void load_rows(const AttentionArgs& a, const RowSpan& span, AttentionShared& s) {
  const uint32_t d = a.cache.head_dim, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t row = warp;  // a warp per row
  if (row >= span.count) return;
  const size_t source = static_cast<size_t>(span.kv_head) * a.tokens * a.group + span.first + row;
  const uint32_t* q = reinterpret_cast<const uint32_t*>(a.q + source * d);
  uint32_t magnitude = 0;
  for (uint32_t i = lane; i < d / 4; i += kWarp) {
    const uint32_t word = q[i];
    reinterpret_cast<uint32_t*>(s.q[row])[i] = word;
    magnitude = __dp4a(__vabs4(word), 0x01010101u, magnitude);
  }
  magnitude = __reduce_add_sync(kAllLanes, magnitude);
  if (lane != 0) return;
  int narrow = 0;
  while (127ull * magnitude > 32767ull << narrow) ++narrow;
  const uint32_t end = static_cast<uint32_t>(a.state->position) + (span.first + row) / a.group + 1;
  s.rows[row] = {a.q_scale[source], narrow, a.window != 0 && end > a.window ? end - a.window : 0, end};
}

// The part of [0, x) inside the block that starts at `start`, relative to it.
__device__ inline uint32_t within(uint32_t x, uint32_t start) {
  return x > start ? min(x - start, uint32_t{kKeyBlock}) : 0;
}

// Extremes of the scales of keys 0 .. end-1 of the block.
struct ScaleExtremes {
  float k;
  int high, low;  // of the log scales of V
};

__device__ inline ScaleExtremes scale_extremes(float k_scale, int v_log, bool counts, AttentionShared& s) {
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t k = __reduce_max_sync(kAllLanes, counts ? __float_as_uint(k_scale) : 0u);  // scales are >= 0
  const int high = __reduce_max_sync(kAllLanes, counts ? v_log : kNoMax);
  const int low = __reduce_min_sync(kAllLanes, counts ? v_log : -kNoMax);
  __syncthreads();  // the previous extremes were read
  if (threadIdx.x % kWarp == 0) s.warp_scale[warp] = k, s.warp_high[warp] = high, s.warp_low[warp] = low;
  __syncthreads();
  uint32_t k_max = 0;
  ScaleExtremes e{0.0f, kNoMax, -kNoMax};
#pragma unroll
  for (uint32_t w = 0; w < kAttentionWarps; ++w) {
    k_max = max(k_max, s.warp_scale[w]);
    e.high = max(e.high, s.warp_high[w]);
    e.low = min(e.low, s.warp_low[w]);
  }
  e.k = __uint_as_float(k_max);
  return e;
}

// F's mantissa and exponent, as row_factor() of index_scale.cpp.
__device__ inline int row_factor(float q_scale, float k_scale_max, float scale, int narrow, int& lshift) {
  constexpr float kPerUnit = static_cast<float>((1024.0 / 6.6) * (32768.0 / 32767.0));  // times 2^narrow, exactly
  float f = ((q_scale * k_scale_max) * scale) * (kPerUnit * static_cast<float>(1 << narrow));
  lshift = min(max(static_cast<int>(__float_as_uint(f) >> 23) - 126, 0), 15);  // f >= 0
  f = f * __uint_as_float(static_cast<uint32_t>(127 - lshift) << 23);
  return min(rne(f < 1.0f ? f * 32768.0f : 32767.0f), 32767);
}

// q8 . k8 of this thread's key with every row. R: rows that a block of threads has at most.
template <uint32_t R>
__device__ inline void dot_rows(const CachePieces& cache, const AttentionShared& s, int (&logit)[R]) {
#pragma unroll
  for (uint32_t r = 0; r < R; ++r) logit[r] = 0;
  if (threadIdx.x >= cache.keys) return;
  const auto add = [&](uint32_t c, const uint4& key) {
#pragma unroll
    for (uint32_t r = 0; r < R; ++r) {
      const uint4 q = s.q[r][c];
      logit[r] = dot4(q.x, key.x, logit[r]), logit[r] = dot4(q.y, key.y, logit[r]);
      logit[r] = dot4(q.z, key.z, logit[r]), logit[r] = dot4(q.w, key.w, logit[r]);
    }
  };
  const uint32_t pieces = cache.head_dim / 16;
#pragma unroll
  for (uint32_t c = 0; c < CachePieces::kEarly; ++c)
    if (c < pieces) add(c, cache.key[c]);
  for (uint32_t c = CachePieces::kEarly; c < pieces; ++c) add(c, cache.key_piece(c));
}

// y of the thread's key for every row in counts (kNoMax where not visible), its weight in the row sum, and the rows'
// maxima per warp.
template <uint32_t R>
__device__ inline void logits_to_counts(const AttentionArgs& a, const RowSpan& span, uint32_t start, float k_scale,
                                        int v_log, AttentionShared& s, int (&y)[R], uint32_t (&weight)[R]) {
  const uint32_t j = threadIdx.x;
  uint32_t previous_end = 0;
  ScaleExtremes e{};
  int ratio = 0, raised = 0;
  uint32_t own_weight = 0;
  float unit = 0.0f;
#pragma unroll
  for (uint32_t r = 0; r < R; ++r) {
    if (r >= span.count) {
      y[r] = kNoMax, weight[r] = 0;
      continue;
    }
    const QueryRow row = s.rows[r];
    const uint32_t begin = within(row.begin, start), end = within(row.end, start);
    if (end != previous_end) {  // the same for all threads
      previous_end = end;
      e = scale_extremes(k_scale, v_log, j < end, s);
      const int lowest = e.high - kContrast, smallest = max(e.low, lowest);
      const float inverse = e.k < 1e-30f ? 0.0f : __fdiv_rn(32767.0f, e.k), value = k_scale * inverse;
      ratio = rne(value < 32767.0f ? value : 32767.0f);
      raised = max(v_log, lowest);
      own_weight = j < end ? s.weights[raised - smallest] : 0;
      unit = exp_f32(static_cast<float>(-smallest) * kNatsPerCount);
    }
    int lshift;
    const int factor = row_factor(row.scale, e.k, a.scale, row.narrow, lshift);
    const int half = row.narrow > 0 ? 1 << (row.narrow - 1) : 0;
    const int u = mulhrs(sat16((y[r] + half) >> row.narrow), ratio);
    const int t = mulhrs(sat16(u * (1 << lshift)), factor);
    y[r] = j >= begin && j < end ? sat16(t + raised) : kNoMax;
    weight[r] = own_weight;
    const int max = __reduce_max_sync(kAllLanes, y[r]);
    if (j % kWarp == 0) s.warp_max[r][j / kWarp] = max;
    if (j == 0) {
      s.sum_unit[r] = unit;
      s.result[r].lowest = e.high - kContrast;
      s.result[r].light = e.low < e.high - kContrast;
    }
  }
}

template <uint32_t R>
__device__ inline void counts_to_weights(const RowSpan& span, AttentionShared& s, const int (&y)[R],
                                         const uint32_t (&weight)[R]) {
  const uint32_t warp = threadIdx.x / kWarp;
#pragma unroll
  for (uint32_t r = 0; r < R; ++r) {
    if (r >= span.count) break;
    int max = s.warp_max[r][0];
#pragma unroll
    for (uint32_t w = 1; w < kAttentionWarps; ++w) max = ::max(max, s.warp_max[r][w]);
    const uint32_t e = y[r] == kNoMax ? 0 : s.lut[(min(max - y[r], 1024) * 63 + 512) >> 10];
    reinterpret_cast<uint8_t*>(s.probs[r])[threadIdx.x] = static_cast<uint8_t>(e);
    const uint32_t sum = __reduce_add_sync(kAllLanes, e * weight[r]);
    if (threadIdx.x % kWarp == 0) s.warp_sum[r][warp] = sum;
    if (threadIdx.x == 0) s.result[r].max = max;
  }
}

// O_b: 16 keys at a time; the threads of a channel meet in shared memory.
template <uint32_t R>
__device__ inline void add_values(const RowSpan& span, const CachePieces& cache, AttentionShared& s) {
  int sum[R] = {};
  const auto add = [&](uint32_t piece, const uint4& value) {
#pragma unroll
    for (uint32_t r = 0; r < R; ++r) {
      const uint4 p = s.probs[r][piece];
      sum[r] = dot4_u8s8(p.x, value.x, sum[r]), sum[r] = dot4_u8s8(p.y, value.y, sum[r]);
      sum[r] = dot4_u8s8(p.z, value.z, sum[r]), sum[r] = dot4_u8s8(p.w, value.w, sum[r]);
    }
  };
#pragma unroll
  for (uint32_t i = 0; i < CachePieces::kEarly; ++i)
    if (cache.has(cache.piece(i))) add(cache.piece(i), cache.value[i]);
  for (uint32_t piece = cache.piece(CachePieces::kEarly); cache.has(piece); piece += cache.piece_step)
    add(piece, cache.value_piece(piece));
  if (cache.first_piece >= kKeyBlock) return;
#pragma unroll
  for (uint32_t r = 0; r < R; ++r)
    if (r < span.count) atomicAdd(&s.out[r * cache.head_dim + cache.channel], sum[r]);
}

// Keys of the block that starts at `start` which some row sees: the last row sees furthest.
__device__ inline uint32_t visible_keys(const RowSpan& span, uint32_t start, const AttentionShared& s) {
  return within(s.rows[span.count - 1].end, start);
}

// Fills s.result, s.probs and s.out of the rows for key block `block`. Begins and ends with a barrier.
template <uint32_t R>
__device__ inline void attend_block(const AttentionArgs& a, const RowSpan& span, uint32_t block,
                                    const CachePieces& cache, AttentionShared& s) {
  const uint32_t d = a.cache.head_dim, start = block * kKeyBlock, j = threadIdx.x;
  __syncthreads();
  for (uint32_t i = j; i < span.count * d; i += kAttentionThreads) s.out[i] = 0;
  int y[R];
  uint32_t weight[R];
  dot_rows<R>(cache, s, y);
  logits_to_counts<R>(a, span, start, cache.k_scale, cache.v_log, s, y, weight);
  __syncthreads();
  counts_to_weights<R>(span, s, y, weight);
  __syncthreads();
  if (j < span.count) {
    uint32_t sum = 0;
#pragma unroll
    for (uint32_t w = 0; w < kAttentionWarps; ++w) sum += s.warp_sum[j][w];
    s.result[j].sum = static_cast<float>(sum) * s.sum_unit[j];
  }
  add_values<R>(span, cache, s);
  __syncthreads();
}

// Running maximum and sum of a row (section 5); take() gives the factors of what was there and of what comes.
struct RowState {
  int max;
  float sum;

  __device__ static RowState empty() { return {kNoMax, 0.0f}; }

  __device__ void take(int other_max, float other_sum, float& a, float& b) {
    const int larger = ::max(max, other_max);
    a = decay(max, larger);
    b = decay(other_max, larger);
    sum = sum * a + other_sum * b;
    max = larger;
  }
  __device__ bool drops(int block_max) const { return block_max == kNoMax || block_max + kDropCounts < max; }
};

// What E' of a light key multiplied v8 by too much, of a block with weight b.
__device__ inline float surplus(uint32_t e, int v_log, int lowest, float b) {
  const float share = exp_f32(static_cast<float>(v_log - lowest) * kNatsPerCount);
  return (static_cast<float>(e) * (1.0f - share)) * b;
}

// Byte of the cache's V that holds (key of the block, channel).
__device__ inline uint32_t v_offset(uint32_t key, uint32_t channel, uint32_t head_dim) {
  return (key / 16 * head_dim + channel) * 16 + key % 16;
}

}  // namespace intattention::cuda
