// u8 x s8 -> s32 with AVX512-VNNI, exact for every input; register map and cost in gemm_x8s8s32_avx512vnni.h.
//
// E' is the unsigned operand vpdpbusd wants. Per row block the chunks of 16 k that are zero in all its rows are found
// once and skipped for every tile (nonzero_chunks.h), so V is not even read there.
#include "gemm_x8s8s32_avx512vnni.h"
#include "kernels.h"
#include "nonzero_chunks.h"

namespace intattention {
namespace {

template <size_t R, size_t T>
inline void tiles(const ChunkList& chunks, size_t k, const uint8_t* a, size_t lda, const int8_t* b, size_t b_stride,
                  int32_t* c, size_t ldc) {
  __m512i sum[R][T];
#pragma GCC unroll 8
  for (size_t i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (size_t t = 0; t < T; ++t) sum[i][t] = _mm512_setzero_si512();
  for (size_t entry = 0; entry < chunks.count; ++entry) {
    const size_t kk = size_t{chunks.index[entry]} * kChunk;
    multiply_step<R, T>(a + kk, lda, b + kk * kTileRows8, b_stride, sum);
    multiply_step<R, T>(a + kk + kStep, lda, b + (kk + kStep) * kTileRows8, b_stride, sum);
  }
  for (size_t kk = k / kChunk * kChunk; kk < k; kk += kStep)
    multiply_step<R, T>(a + kk, lda, b + kk * kTileRows8, b_stride, sum);
  store_sums<R, T>(sum, false, c, ldc);
}

template <size_t R>
inline void row_block(size_t n, size_t k, const uint8_t* a, size_t lda, const int8_t* b, size_t b_stride, int32_t* c,
                      size_t ldc) {
  ChunkList chunks;
  list_nonzero_chunks<R>(k, a, lda, &chunks);
  size_t column = 0;
  for (; column + kTileRows8 < n; column += 2 * kTileRows8, b += 2 * b_stride)
    tiles<R, 2>(chunks, k, a, lda, b, b_stride, c + column, ldc);
  if (column < n) tiles<R, 1>(chunks, k, a, lda, b, b_stride, c + column, ldc);
}

}  // namespace

void gemm_u8s8s32_avx512vnni(size_t m, size_t n, size_t k, const uint8_t* a, size_t lda, const int8_t* b_packed,
                             size_t b_stride, int32_t* c, size_t ldc) {
  for_row_blocks(m, [&](size_t i, auto r) {
    row_block<decltype(r)::value>(n, k, a + i * lda, lda, b_packed, b_stride, c + i * ldc, ldc);
  });
}

}  // namespace intattention
