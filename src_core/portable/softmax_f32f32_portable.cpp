// Portable float softmax of one row of one key block; exp is exp_f32.h.
#include "exp_f32.h"
#include "portable/kernels.h"

namespace intattention {

void softmax_f32f32_portable(size_t n, const float* logits, SoftmaxRow* row, float* probs) {
  float max = row->max;
  for (size_t j = row->begin; j < row->end; ++j) max = logits[j] > max ? logits[j] : max;
  row->max = max;
  row->sum = 0.0f;
  for (size_t j = 0; j < n; ++j) {
    const bool visible = j >= row->begin && j < row->end;
    const float t = visible ? (logits[j] - max) * row->scale : 0.0f;
    probs[j] = !visible ? 0.0f : t == t ? exp_f32(t) : t;  // a NaN stays one
    row->sum += probs[j];
  }
}

}  // namespace intattention
