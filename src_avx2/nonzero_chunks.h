// Which chunks of 16 k of a row block of E' hold anything: after the index softmax part of E' is zero (2 to 10 %
// of the 8 x 16 tiles of SmolLM2 at 8K keys, all of a dropped block), and a chunk of zeros adds nothing to any column.
//
// The list is made once per row block and used for every tile of V: R loads and R - 1 vpor per 32 k, then one
// branch-free append per chunk.
//
// Included by the gemm_u8s8s32 kernels only; everything is in an anonymous namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace {

constexpr size_t kChunk = 16;                  // k per chunk
constexpr size_t kMaxChunks = 65536 / kChunk;  // the contract's deepest k

struct ChunkList {
  size_t count;
  uint16_t index[kMaxChunks + 1];  // ascending; the place behind the last entry is scratch

  // branch-free: the entry is written in any case and kept if the chunk is not zero
  void append(size_t chunk, bool nonzero) {
    index[count] = static_cast<uint16_t>(chunk);
    count += nonzero;
  }
};

// The whole chunks of k; the k % 16 columns behind them are not looked at.
template <size_t R>
inline void list_nonzero_chunks(size_t k, const uint8_t* a, size_t lda, ChunkList* list) {
  list->count = 0;
  size_t kk = 0;
  for (; kk + 2 * kChunk <= k; kk += 2 * kChunk) {
    __m256i any = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + kk));
#pragma GCC unroll 8
    for (size_t i = 1; i < R; ++i)
      any = _mm256_or_si256(any, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + i * lda + kk)));
    const uint32_t zero = static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(any, _mm256_setzero_si256())));
    list->append(kk / kChunk, (zero & 0xffff) != 0xffff);
    list->append(kk / kChunk + 1, zero >> 16 != 0xffff);
  }
  if (kk + kChunk <= k) {
    __m128i any = _mm_setzero_si128();
    for (size_t i = 0; i < R; ++i)
      any = _mm_or_si128(any, _mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i * lda + kk)));
    list->append(kk / kChunk, !_mm_testz_si128(any, any));
  }
}

}  // namespace
