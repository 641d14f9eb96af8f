// Portable index softmax of one row of one key block; the formula is in kernel_table.h and
// docs/numerics.md section 3.
#include <cstring>

#include "portable/kernels.h"

namespace intattention {
namespace {

int32_t sat16(int64_t x) { return static_cast<int32_t>(x < -32768 ? -32768 : x > 32767 ? 32767 : x); }

int32_t mulhrs(int32_t x, int32_t y) { return (x * y + (1 << 14)) >> 15; }

}  // namespace

void index_softmax_s32u8_portable(size_t n, const int32_t* logits, const IndexSoftmaxKeys* keys, IndexSoftmaxRow* row,
                                  int16_t* scratch, uint8_t* probs) {
  const int64_t half = row->narrow > 0 ? int64_t{1} << (row->narrow - 1) : 0;
  int32_t max = kNoMax;
  for (size_t j = row->begin; j < row->end; ++j) {
    const int32_t narrowed = sat16((logits[j] + half) >> row->narrow);
    const int32_t u = mulhrs(narrowed, keys->key_ratio[j]);
    const int32_t t = mulhrs(sat16(int64_t{u} * (1 << row->lshift)), row->factor);
    const int32_t y = sat16(t + keys->log_scale[j]);
    scratch[j] = static_cast<int16_t>(y);
    max = y > max ? y : max;
  }
  std::memset(probs, 0, n);
  const bool dropped = max + kDropCounts < row->max;
  row->max = max;
  row->sum = 0;
  if (dropped) return;
  for (size_t j = row->begin; j < row->end; ++j) {
    const int32_t distance = max - scratch[j];
    const int32_t delta = distance < 1024 ? distance : 1024;
    probs[j] = kIndexSoftmaxLut[(delta * 63 + 512) >> 10];
    row->sum += uint32_t{probs[j]} * (keys->weight_low[j] + 256u * keys->weight_high[j]);
  }
}

}  // namespace intattention
