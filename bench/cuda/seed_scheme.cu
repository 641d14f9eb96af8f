#include "seed_scheme.h"

#include "cuda_error.h"

namespace intattention::bench {
namespace {

constexpr uint32_t kThreads = 128, kRows = 4, kQuantizeThreads = 256;

__global__ void quantize_kernel(uint32_t k, const float* x, int8_t* q, float* scale) {
  __shared__ float largest[kQuantizeThreads];
  float own = 0.0f;
  for (uint32_t i = threadIdx.x; i < k; i += kQuantizeThreads) own = fmaxf(own, fabsf(x[i]));
  largest[threadIdx.x] = own;
  for (uint32_t step = kQuantizeThreads / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) largest[threadIdx.x] = fmaxf(largest[threadIdx.x], largest[threadIdx.x + step]);
  }
  __syncthreads();
  const float s = largest[0] / 127.0f, inverse = s > 0.0f ? 1.0f / s : 0.0f;
  for (uint32_t i = threadIdx.x; i < k; i += kQuantizeThreads) {
    const int value = __float2int_rn(x[i] * inverse);
    q[i] = static_cast<int8_t>(min(max(value, -127), 127));
  }
  if (threadIdx.x == 0) *scale = s;
}

// Four adjacent nibbles in the low half of v -> four signed bytes.
__device__ inline int widen(uint32_t v) {
  int out = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int nibble = static_cast<int>(v << (28 - 4 * i)) >> 28;
    out |= (nibble & 0xff) << (8 * i);
  }
  return out;
}

__global__ void gemv_kernel(uint32_t rows, uint32_t k, const uint8_t* w, const float* row_scale, const int8_t* q,
                            const float* scale, float* y) {
  __shared__ int sums[kRows][kThreads];
  const uint32_t row0 = blockIdx.x * kRows, words = k / 8;
  int sum[kRows] = {};
  for (uint32_t i = threadIdx.x; i < words; i += kThreads) {
    const int2 x = reinterpret_cast<const int2*>(q)[i];
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r) {
      if (row0 + r >= rows) break;
      const uint32_t v = reinterpret_cast<const uint32_t*>(w)[static_cast<size_t>(row0 + r) * words + i];
      sum[r] = __dp4a(widen(v), x.x, sum[r]);
      sum[r] = __dp4a(widen(v >> 16), x.y, sum[r]);
    }
  }
  for (uint32_t r = 0; r < kRows; ++r) sums[r][threadIdx.x] = sum[r];
  for (uint32_t step = kThreads / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step)
      for (uint32_t r = 0; r < kRows; ++r) sums[r][threadIdx.x] += sums[r][threadIdx.x + step];
  }
  if (threadIdx.x == 0)
    for (uint32_t r = 0; r < kRows && row0 + r < rows; ++r)
      y[row0 + r] = static_cast<float>(sums[r][0]) * row_scale[row0 + r] * *scale;
}

}  // namespace

void seed_quantize(uint32_t k, const float* x, int8_t* q, float* scale, cudaStream_t stream) {
  quantize_kernel<<<1, kQuantizeThreads, 0, stream>>>(k, x, q, scale);
  cuda::check_launch("seed_quantize");
}

void seed_gemv(uint32_t rows, uint32_t k, const uint8_t* w, const float* row_scale, const int8_t* q, const float* scale,
               float* y, cudaStream_t stream) {
  gemv_kernel<<<(rows + kRows - 1) / kRows, kThreads, 0, stream>>>(rows, k, w, row_scale, q, scale, y);
  cuda::check_launch("seed_gemv");
}

}  // namespace intattention::bench
