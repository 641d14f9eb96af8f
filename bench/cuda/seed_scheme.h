// The scheme that docs/cuda.md measures against: int4 with one scale per row, adjacent nibbles in two's complement, one
// activation scale for the whole vector, found by one block in a kernel of its own. Written from its description.
#pragma once

#include <cuda_runtime.h>
#include <cstdint>

namespace intattention::bench {

// x [k] -> q [k], *scale. One block.
void seed_quantize(uint32_t k, const float* x, int8_t* q, float* scale, cudaStream_t stream);

// y[row] = sum of w * q * row_scale[row] * *scale; w [rows][k / 2], k a multiple of 8.
void seed_gemv(uint32_t rows, uint32_t k, const uint8_t* w, const float* row_scale, const int8_t* q, const float* scale,
               float* y, cudaStream_t stream);

}  // namespace intattention::bench
