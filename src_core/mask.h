// Which keys a query sees: causal, sliding window, bidirectional prefix, or all. Both ends of the visible span
// never move back from one query to the next.
#pragma once

#include <algorithm>
#include <cstddef>

namespace intattention {

struct KeySpan {
  size_t begin, end;  // keys begin <= j < end

  bool empty() const { return begin >= end; }

  // The part inside [start, start + size), relative to start.
  KeySpan within(size_t start, size_t size) const {
    const auto clamp = [&](size_t key) { return key > start ? std::min(key - start, size) : 0; };
    const size_t last = clamp(end);
    return {std::min(clamp(begin), last), last};
  }
};

struct Mask {
  size_t kv_len;
  size_t q_position;  // position of query 0
  bool causal;        // query i sees keys up to its own position q_position + i
  size_t window = 0;  // with causal: at most the last `window` of them; 0 = no limit
  size_t prefix = 0;  // with causal: keys below `prefix` are seen by every query (prefix LM)

  KeySpan visible(size_t query) const {
    if (!causal) return {0, kv_len};
    const size_t end = q_position + query + 1;
    return {window != 0 && end > window ? end - window : 0, std::min(std::max(end, prefix), kv_len)};
  }
};

}  // namespace intattention
