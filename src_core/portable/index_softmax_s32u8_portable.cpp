// Portable index softmax of one row of one key block; the formula is in kernel_table.h and
// docs/numerics.md section 3.
#include <cstring>

#include "portable/kernels.h"

namespace intattention {
namespace {

int32_t sat16(int64_t x) { return static_cast<int32_t>(x < -32768 ? -32768 : x > 32767 ? 32767 : x); }

int32_t mulhrs(int32_t x, int32_t y) { return (x * y + (1 << 14)) >> 15; }

}  // namespace

void index_softmax_s32u8_portable(size_t n, const int32_t* logits, const int16_t* key_ratio,
                                  const uint16_t* value_ratio, IndexSoftmaxRow* row, int16_t* scratch, uint8_t* probs) {
  const int64_t half = row->narrow > 0 ? int64_t{1} << (row->narrow - 1) : 0;
  int32_t max = row->max;
  for (size_t j = row->begin; j < row->end; ++j) {
    const int32_t narrowed = sat16((logits[j] + half) >> row->narrow);
    const int32_t u = mulhrs(narrowed, key_ratio[j]);
    const int32_t t = mulhrs(sat16(int64_t{u} * (1 << row->lshift)), row->factor);
    scratch[j] = static_cast<int16_t>(t);
    max = t > max ? t : max;
  }
  std::memset(probs, 0, n);
  uint32_t sum = 0;
  for (size_t j = row->begin; j < row->end; ++j) {
    const int32_t distance = max - scratch[j];
    const int32_t delta = distance < 1024 ? distance : 1024;
    const uint32_t e = kIndexSoftmaxLut[(delta * 31 + 512) >> 10];
    sum += e;
    probs[j] = static_cast<uint8_t>((e * value_ratio[j] + 128) >> 8);
  }
  row->max = max;
  row->sum = sum;
}

}  // namespace intattention
