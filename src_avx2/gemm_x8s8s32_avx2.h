// The loop that gemm_s8s8s32_avx2 and gemm_u8s8s32_avx2 share: A (s8 or u8) is widened to s16 once per
// row block, B tiles (r8k4, packing.h) are widened in registers, products are summed by vpmaddwd.
//
// Registers for 4 rows of A and one tile of 8 rows of B:
//
//                      b_lo: rows 0-3 x 4 k (s16)    b_hi: rows 4-7 x 4 k (s16)
//   a[0] 4 k, broadcast    sum[0][0]  8 x s32            sum[0][1]
//   ...                    ...                           ...
//   a[3]                   sum[3][0]                     sum[3][1]
//
// A 32-bit lane of sum holds (row, pair of k); the two pairs of a row are added at the end.
// Cost per 4 k: 2 widening loads, 4 broadcasts, 8 vpmaddwd + 8 vpaddd for 128 MAC, that is 18 vector
// operations on 3 ports: 6 cycles, 21 MAC per cycle.
//
// Rejected: vpmaddubsw on |a| and sign(b, a) for s8 (24 MAC per cycle) is wrong for a = -128, and for u8 x s8
// vpmaddubsw saturates at 255*127*2; one exact loop for both was preferred until the attention of issue B.
//
// Included by the two kernel files only; everything is in an anonymous namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

constexpr size_t kRows = 4;       // rows of A per block
constexpr size_t kDepth = 512;    // k per widened panel: 4 x 512 x 2 bytes = 4 KB of stack
constexpr size_t kTileRows8 = 8;  // rows of B per tile

inline __m256i widen16(const int8_t* p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

template <typename A>
inline void widen_panel(size_t rows, size_t k, const A* a, size_t lda, int16_t (*panel)[kDepth]) {
  for (size_t i = 0; i < rows; ++i)
    for (size_t kk = 0; kk < k; ++kk)
      panel[i][kk] = a[i * lda + kk];  // NOLINT(bugprone-signed-char-misuse): s8 keeps its sign
}

inline __m256i broadcast_4k(const int16_t* p) {
  int64_t four;
  std::memcpy(&four, p, sizeof four);  // NOLINT(clang-analyzer-unix.cstring.UninitializedRead): k % 4 == 0
  return _mm256_set1_epi64x(four);
}

// One tile: R rows of the panel against 8 rows of B over k; stored to c, or added to it.
template <size_t R>
inline void tile_product(size_t k, const int16_t (*panel)[kDepth], const int8_t* b, bool add, int32_t* c, size_t ldc) {
  __m256i sum[R][2];
  for (size_t i = 0; i < R; ++i) sum[i][0] = sum[i][1] = _mm256_setzero_si256();
  for (size_t kk = 0; kk < k; kk += 4, b += 4 * kTileRows8) {
    const __m256i b_lo = widen16(b), b_hi = widen16(b + 16);
    for (size_t i = 0; i < R; ++i) {
      const __m256i a = broadcast_4k(panel[i] + kk);
      sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_madd_epi16(b_lo, a));
      sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_madd_epi16(b_hi, a));
    }
  }
  for (size_t i = 0; i < R; ++i) {
    // hadd leaves row pairs (0,1) (4,5) (2,3) (6,7)
    const __m256i pairs = _mm256_hadd_epi32(sum[i][0], sum[i][1]);
    __m256i rows = _mm256_permute4x64_epi64(pairs, _MM_SHUFFLE(3, 1, 2, 0));
    __m256i* out = reinterpret_cast<__m256i*>(c + i * ldc);
    if (add) rows = _mm256_add_epi32(rows, _mm256_loadu_si256(out));
    _mm256_storeu_si256(out, rows);
  }
}

template <size_t R, typename A>
inline void row_block(size_t n, size_t k, const A* a, size_t lda, const int8_t* b, size_t b_stride, int32_t* c,
                      size_t ldc) {
  alignas(32) int16_t panel[R][kDepth];
  for (size_t k0 = 0; k0 < k; k0 += kDepth) {
    const size_t depth = k - k0 < kDepth ? k - k0 : kDepth;
    widen_panel(R, depth, a + k0, lda, panel);
    for (size_t tile = 0; tile * kTileRows8 < n; ++tile)
      tile_product<R>(depth, panel, b + tile * b_stride + k0 * kTileRows8, k0 > 0, c + tile * kTileRows8, ldc);
  }
}

template <typename A>
inline void gemm_x8s8s32(size_t m, size_t n, size_t k, const A* a, size_t lda, const int8_t* b, size_t b_stride,
                         int32_t* c, size_t ldc) {
  size_t i = 0;
  for (; i + kRows <= m; i += kRows) row_block<kRows>(n, k, a + i * lda, lda, b, b_stride, c + i * ldc, ldc);
  for (; i < m; ++i) row_block<1>(n, k, a + i * lda, lda, b, b_stride, c + i * ldc, ldc);
}

}  // namespace
