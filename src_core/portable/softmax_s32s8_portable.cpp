// Portable float softmax of one row of one key block; the formula is in kernel_table.h and docs/numerics.md section 8.
#include <cstring>

#include "exp_f32.h"
#include "portable/kernels.h"

namespace intattention {

void softmax_s32s8_portable(size_t n, const int32_t* logits, FloatSoftmaxRow* row, int8_t* probs) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to nearest even
  int32_t max = row->max, sum = 0;
  for (size_t j = row->begin; j < row->end; ++j) max = logits[j] > max ? logits[j] : max;
  std::memset(probs, 0, n);
  for (size_t j = row->begin; j < row->end; ++j) {
    const float p = exp_f32(static_cast<float>(logits[j] - max) * row->factor);
    const int32_t rounded = static_cast<int32_t>((p * 127.0f + kRound) - kRound);
    sum += rounded;
    probs[j] = static_cast<int8_t>(rounded);
  }
  row->max = max;
  row->sum = sum;
}

}  // namespace intattention
