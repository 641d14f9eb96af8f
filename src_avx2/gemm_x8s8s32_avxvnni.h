// What gemm_s8s8s32_avxvnni and gemm_u8s8s32_avxvnni share: a register tile of R rows of A (unsigned) and T tiles of
// 8 rows of B (signed, r8k4 of packing.h), multiplied by the VEX form of vpdpbusd.
//
//                          b[0]: 8 rows x 4 k    b[1]: the next tile
//   a[0] 4 k, broadcast    sum[0][0]  8 x s32    sum[0][1]
//   ...                    ...                   ...
//   a[5]                   sum[5][0]             sum[5][1]
//
// R = 6, T = 2: 12 sums + 2 of B + 1 of A of 16 registers. Per 4 k: 12 vpdpbusd on ports 0 and 1 (6 cycles; latency 5
// needs 10 sums in flight) and 8 loads (2.7 cycles): 64 MAC per cycle, the peak.
// Measured on Sapphire Rapids, m = 32: QK 79 to 87 % of it, dense PV 84 to 90 %.
//
// Included by the two kernel files only; everything is in an anonymous namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "row_blocks_avx2.h"

namespace {

constexpr size_t kStep = 4;  // k per step, the table's attention_inner

inline __m256i broadcast_4(const uint8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm256_set1_epi32(four);
}

inline __m256i load_b(const int8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

// sum += 4 products per lane. As an instruction, because GCC 12 turns a loop of _mm256_dpbusd_avx_epi32 over 12 sums
// into as many register copies as products.
inline void multiply_add(__m256i& sum, __m256i a, __m256i b) {
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
}

// sum += A[R rows][4 k] x B[T tiles][4 k]
template <size_t R, size_t T>
inline void multiply_step(const uint8_t* a, size_t lda, const int8_t* b, size_t b_stride, __m256i (&sum)[R][T]) {
  __m256i bv[T];
#pragma GCC unroll 8
  for (size_t t = 0; t < T; ++t) bv[t] = load_b(b + t * b_stride);
#pragma GCC unroll 8
  for (size_t i = 0; i < R; ++i) {
    const __m256i av = broadcast_4(a + i * lda);
#pragma GCC unroll 8
    for (size_t t = 0; t < T; ++t) multiply_add(sum[i][t], av, bv[t]);
  }
}

}  // namespace
