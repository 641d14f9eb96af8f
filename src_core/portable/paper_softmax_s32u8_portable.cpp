// Portable IndexSoftmax as published, one whole row; the formula is in kernel_table.h and docs/numerics.md section 7.
#include <cstring>

#include "portable/kernels.h"

namespace intattention {
namespace {

uint32_t index_of(int32_t delta, const PaperIndex& c) {
  const uint64_t clipped = static_cast<uint64_t>(delta < c.limit ? delta : c.limit) << c.lshift;
  return (static_cast<uint32_t>(clipped * c.multiplier >> 32) + c.half) >> c.shift;
}

}  // namespace

uint32_t paper_softmax_s32u8_portable(size_t n, const int32_t* logits, size_t begin, size_t end,
                                      const PaperIndex* index, uint8_t* probs) {
  std::memset(probs, 0, n);
  if (begin >= end) return 0;
  int32_t max = logits[begin];
  for (size_t j = begin; j < end; ++j) max = logits[j] > max ? logits[j] : max;
  uint32_t sum = 0;
  for (size_t j = begin; j < end; ++j) {
    probs[j] = static_cast<uint8_t>(index_of(max - logits[j], *index));
    sum += kPaperLut[probs[j]];
  }
  uint8_t table[32];  // P of each index: half to even, exact in integers
  for (size_t i = 0; i < 32; ++i) {
    const uint32_t scaled = 255u * kPaperLut[i], quotient = scaled / sum, twice = 2 * (scaled % sum);
    table[i] = static_cast<uint8_t>(quotient + (twice > sum || (twice == sum && quotient % 2 == 1) ? 1 : 0));
  }
  for (size_t j = begin; j < end; ++j) probs[j] = table[probs[j]];
  return sum;
}

}  // namespace intattention
