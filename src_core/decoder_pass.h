// How the tokens of a call, of one sequence or of many, are cut into passes over the weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv_cache.h"

namespace intattention {

enum class LogitRows { kNone, kLast, kAll };

// Rows of logits that `count` tokens give.
inline size_t logit_row_count(LogitRows rows, size_t count) {
  return rows == LogitRows::kAll ? count : rows == LogitRows::kLast ? 1 : 0;
}

// The next tokens of one sequence; they go to positions cache->length() ... of its cache.
struct DecoderInput {
  const int32_t* ids;
  size_t count;
  KVCache* cache;
  LogitRows rows;
};

// The part of an input that one pass computes. Its tokens are rows row .. row+count-1 of the pass.
struct Segment {
  const int32_t* ids;
  KVCache* cache;
  size_t row, count, position;
};

// Tokens first .. first+count-1 of a segment that one work item ropes, quantises and appends: they lie in one aligned
// group of kAppendTokens positions, so that threads never share a cache line of a KV cache, and V rows go in by groups
// of keys.
constexpr size_t kAppendTokens = 16;
struct AppendSpan {
  size_t segment, first, count;
};

struct Pass {
  std::vector<Segment> segments;
  std::vector<AppendSpan> spans;
  std::vector<size_t> logit_rows;  // rows whose logits are wanted, in order of the inputs
  size_t rows = 0;
};

// Fills passes of up to max_rows tokens with the inputs in their order.
std::vector<Pass> plan_passes(const std::vector<DecoderInput>& inputs, size_t max_rows);

}  // namespace intattention
