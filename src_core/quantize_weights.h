// Scales chosen from float weights: the integers and f16 scales of LogicalWeights from float32.
#pragma once

#include "packing.h"

namespace intattention {

// Where a matrix of `rows` x `columns` goes; sizes as in LogicalWeights, min for w4g32a only.
struct QuantizedWeights {
  uint8_t* q;
  uint16_t* scale;
  uint16_t* min;
};

// Per group of 32 along k. w8g32: scale = absmax / 127. The 4-bit formats search: the range is tried wider and
// narrower than the group's, integers and scale (and minimum) are refitted to each other by least squares, and of all
// candidates, rounded to f16 as they will be stored, the one with the smallest error is kept,
//
//   error = sum over the group of importance[k] * sqrt(1 + w^2 / mean of w^2) * (w - w')^2
//
// The plain range is among them, so that the result is never worse. Large weights count more, because the plain sum
// of squares clips them and perplexity suffers: docs/quantizer.md.
//   w           [rows][columns], columns a multiple of 32
//   importance  [columns], >= 0 and finite; null stands for 1 everywhere. A group whose importance is 0 counts as 1
// Throws InvalidArgument if a weight is NaN, Inf or beyond what an f16 scale can reach.
void quantize_weights(WeightFormat format, size_t rows, size_t columns, const float* w, const float* importance,
                      const QuantizedWeights& out);

uint16_t f32_to_f16(float x);  // rounds half to even; beyond 65504 infinity

}  // namespace intattention
