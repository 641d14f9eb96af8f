#include "decoder_pass.h"

#include <algorithm>

namespace intattention {
namespace {

void add_spans(Pass& pass) {
  const Segment& segment = pass.segments.back();
  for (size_t done = 0; done < segment.count;) {
    const size_t aligned_end = (segment.position + done) / kAppendTokens * kAppendTokens + kAppendTokens;
    const size_t count = std::min(aligned_end - segment.position, segment.count) - done;
    pass.spans.push_back({pass.segments.size() - 1, done, count});
    done += count;
  }
}

void add_segment(Pass& pass, const DecoderInput& input, size_t done, size_t count) {
  pass.segments.push_back({input.ids + done, input.cache, pass.rows, count, input.cache->length() + done});
  add_spans(pass);
  for (size_t i = 0; i < count; ++i)
    if (input.rows == LogitRows::kAll || (input.rows == LogitRows::kLast && done + i + 1 == input.count))
      pass.logit_rows.push_back(pass.rows + i);
  pass.rows += count;
}

}  // namespace

std::vector<Pass> plan_passes(const std::vector<DecoderInput>& inputs, size_t max_rows) {
  std::vector<Pass> passes(1);
  for (const DecoderInput& input : inputs)
    for (size_t done = 0; done < input.count;) {
      if (passes.back().rows == max_rows) passes.emplace_back();
      const size_t count = std::min(max_rows - passes.back().rows, input.count - done);
      add_segment(passes.back(), input, done, count);
      done += count;
    }
  return passes;
}

}  // namespace intattention
