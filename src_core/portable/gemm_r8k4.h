// The loop both portable attention gemms share; A is s8 or u8.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel_table.h"

namespace intattention {

template <typename A>
void gemm_r8k4(size_t m, size_t n, size_t k, const A* a, size_t lda, const int8_t* b_packed, size_t b_stride,
               int32_t* c, size_t ldc) {
  for (size_t tile = 0; tile < (n + kTileRows - 1) / kTileRows; ++tile) {
    const int8_t* b = b_packed + tile * b_stride;
    for (size_t i = 0; i < m; ++i) {
      int32_t sum[kTileRows] = {};
      for (size_t kk = 0; kk < k; kk += 4)
        for (size_t r = 0; r < kTileRows; ++r)
          for (size_t byte = 0; byte < 4; ++byte) sum[r] += a[i * lda + kk + byte] * b[kk * kTileRows + r * 4 + byte];
      for (size_t r = 0; r < kTileRows; ++r) c[i * ldc + tile * kTileRows + r] = sum[r];
    }
  }
}

}  // namespace intattention
