// What gemm_s8s8s32_avx2 and gemm_u8s8s32_avx2 share: the exact product of s8 (or u8) operands widened to s16.
//
// A 32-byte vector of r8k4 (packing.h) holds 4 k of 8 rows. Seen as s16 it splits into
//
//   even:  x << 8 >> 8    k0 and k2 of each row     odd:  x >> 8    k1 and k3 of each row
//
// with three shifts and no shuffle, and A is split the same way. vpmaddwd of a broadcast pair of A with such a vector
// leaves one row of B per 32-bit lane, as r8k4 does for a dot product instruction, so nothing has to be joined at
// the end:
//
//                          b[0]: even or odd of a tile    b[1]: of the next tile
//   a[0] pair, broadcast   sum[0][0]  8 x s32             sum[0][1]
//   ...                    ...                            ...
//   a[5]                   sum[5][0]                      sum[5][1]
//
// R = 6, T = 2: 12 sums + 2 of B + 1 of A + 1 product = 16 registers. Per 2 k: 12 vpmaddwd + 12 vpaddd on ports
// 0, 1, 5 (8 cycles) and 8 loads: 24 MAC per cycle is the bound of this method.
// Measured on Sapphire Rapids, m = 32: QK 88 to 94 % of it, dense PV 74 to 77 % (V is split again for each row block).
//
// Included by the two kernel files only; everything is in an anonymous namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "row_blocks_avx2.h"

namespace {

constexpr size_t kStep = 4;  // k per 32 bytes of B, the table's attention_inner

inline __m256i load_b(const int8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

inline __m256i even_k(__m256i x) { return _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8); }
inline __m256i odd_k(__m256i x) { return _mm256_srai_epi16(x, 8); }

// sum += 2 products per lane. As instructions, because GCC 12 adds the even and the odd products first and then has
// more values alive than registers (measured: 15 MAC per cycle).
inline void multiply_add(__m256i& sum, __m256i a, __m256i b) {
  __m256i product;
  __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(a), "x"(b));
}

// sum += A[R rows][2 k] x B[T tiles][2 k]; pairs of row i at a + i * lda
template <size_t R, size_t T>
inline void multiply_pairs(const int32_t* a, size_t lda, const __m256i (&b)[T], __m256i (&sum)[R][T]) {
#pragma GCC unroll 8
  for (size_t i = 0; i < R; ++i) {
    const __m256i pair = _mm256_set1_epi32(a[i * lda]);
#pragma GCC unroll 8
    for (size_t t = 0; t < T; ++t) multiply_add(sum[i][t], pair, b[t]);
  }
}

}  // namespace
