// The norm before a GEMV of one token, done by every block for itself: no kernel of its own, and the weights come
// meanwhile. Nobody may write what others still read, so hidden + add goes to another buffer.
#pragma once

#include "gemv_block.cuh"
#include "norm.cuh"

namespace intattention::cuda {

template <WeightFormat F, uint32_t kBlock>
class NormFill {
  static constexpr uint32_t kMaxChunks = (kMaxNormedRow + kChunkK - 1) / kChunkK;
  static constexpr uint32_t kPieces = (kMaxChunks * kChunkK / 4 + kBlock - 1) / kBlock;  // of 4 values of a thread

 public:
  // Reads what does not depend on the kernel before.
  __device__ NormFill(const NormedRow& row, uint32_t n) : row_(row), n_(n) {
#pragma unroll
    for (uint32_t s = 0; s < kPieces; ++s)
      weight_[s] = at(s) < n / 4 ? reinterpret_cast<const float4*>(row.weight)[at(s)] : float4{};
  }

  // As fill(). The squares lie where the terms will.
  __device__ void fill(const WeightView& w, const GemvShared<F, 1>& s) const {
    __shared__ float lanes[8];
    float* squares = reinterpret_cast<float*>(s.terms);
    float4 x[kPieces];
    read(x);
#pragma unroll
    for (uint32_t p = 0; p < kPieces; ++p)
      if (at(p) < n_ / 4) store_squares(n_, at(p), x[p], squares);
    __syncthreads();
    sum_squares(n_, squares, lanes);
    __syncthreads();
    const float inverse = inverse_rms(n_, lanes, row_.eps);
    const DeviceRows out{reinterpret_cast<int8_t*>(s.x), reinterpret_cast<float*>(s.sx),
                         GemvShared<F, 1>::kHasMin ? reinterpret_cast<int32_t*>(s.sum) : nullptr};
    const uint32_t pieces = w.chunks * kChunkK / 4;  // whole warps; beyond n they are zeros
#pragma unroll
    for (uint32_t p = 0; p < kPieces; ++p)
      if (at(p) < pieces) quantize_group_by_4(normed(x[p], inverse, weight_[p]), true, at(p), out);
  }

 private:
  __device__ static uint32_t at(uint32_t piece) { return threadIdx.x + piece * kBlock; }

  __device__ void read(float4 (&x)[kPieces]) const {
    float4 add[kPieces];
#pragma unroll
    for (uint32_t p = 0; p < kPieces; ++p) {
      x[p] = add[p] = float4{};
      if (at(p) >= n_ / 4) continue;
      x[p] = reinterpret_cast<const float4*>(row_.hidden)[at(p)];
      if (row_.add != nullptr) add[p] = reinterpret_cast<const float4*>(row_.add)[at(p)];
    }
    if (row_.add == nullptr) return;
#pragma unroll
    for (uint32_t p = 0; p < kPieces; ++p) {
      x[p] = sum_of(x[p], add[p]);
      if (blockIdx.x == 0 && at(p) < n_ / 4) reinterpret_cast<float4*>(row_.sum)[at(p)] = x[p];
    }
  }

  const NormedRow row_;
  const uint32_t n_;
  float4 weight_[kPieces];
};

}  // namespace intattention::cuda
