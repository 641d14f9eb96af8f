// u8 x s8 -> s32 with AVX2, exact for every input. Per row block of E' each chunk of 16 k is one of
//
//   zero    in every row: skipped for all tiles of V (2 to 10 % of the 8 x 16 tiles in SmolLM2 at 8K)
//   light   no row's 8-byte half adds up to more than 127: a 16-bit lane of vpmaddubsw, summed over the chunk, stays
//           within 254 * 128 = 32512. 4 vpmaddubsw + 3 vpaddw + vpmaddwd + vpaddd per row and tile: 9 operations
//           on 3 ports for 128 MAC, 42 MAC per cycle. Most chunks that hold anything are light: a row has few
//           keys near its maximum.
//   heavy   the rest: widened to s16, 24 MAC per cycle (gemm_x8s8s32_avx2.h)
//
// One vpsadbw per row tells the three apart: with s the OR over the rows of the sums of 8 bytes, a chunk is zero if
// its s are 0 and light if no bit above 127 is set.
//
// Rejected: a middle class for vpmaddubsw + vpmaddwd + vpaddd per 4 k (pairs up to 255): 12 operations instead of
// 16 for the few chunks between light and heavy. E' = low + 32 * high with the low parts (0..31, every chunk light)
// dense and the high parts row by row in the steps that hold one: Gaussian logits of deviation 2 13 % faster (36.6
// against 32.2 MAC per cycle on Zen 5, d = 128), flat rows 7 to 13 % slower, and no gain in the whole attention (1.75 x
// fp32 either way).
#include "gemm_x8s8s32_avx2.h"
#include "kernels.h"

namespace intattention {
namespace {

constexpr size_t kChunk = 16;
constexpr size_t kDepth = 512;  // k per pass; attention never has more than 256
constexpr size_t kChunks = kDepth / kChunk;
constexpr size_t kChunkSteps = kChunk / kStep;
constexpr size_t kPairs = kDepth / kStep;  // even (or odd) pairs of a row

// The chunks of R rows of A: where the light ones start, and the heavy ones widened.
template <size_t R>
struct ChunkLists {
  size_t n_light = 0, n_heavy = 0, tail_steps = 0;
  uint16_t light[kChunks + 1], heavy[kChunks + 1];  // first k of each chunk
  int32_t even[R * kPairs], odd[R * kPairs];        // pairs of the heavy chunks, then of the tail
};

inline __m128i load_16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

// Pairs (k0, k2) and (k1, k3) of up to 16 k.
template <size_t R>
inline void widen_chunk(size_t first_step, size_t k, const uint8_t* a, size_t lda, ChunkLists<R>* lists) {
  for (size_t i = 0; i < R; ++i) {
    uint8_t padded[kChunk] = {};
    if (k < kChunk) std::memcpy(padded, a + i * lda, k);
    const __m128i x = load_16(k < kChunk ? padded : a + i * lda);
    __m128i even = _mm_and_si128(x, _mm_set1_epi16(255)), odd = _mm_srli_epi16(x, 8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(lists->even + i * kPairs + first_step), even);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(lists->odd + i * kPairs + first_step), odd);
  }
}

template <size_t R>
inline void sort_chunks(size_t k, const uint8_t* a, size_t lda, ChunkLists<R>* lists) {
  size_t kk = 0;
  for (; kk + kChunk <= k; kk += kChunk) {
    __m128i sums = _mm_setzero_si128();
#pragma GCC unroll 8
    for (size_t i = 0; i < R; ++i)
      sums = _mm_or_si128(sums, _mm_sad_epu8(load_16(a + i * lda + kk), _mm_setzero_si128()));
    const uint64_t any =
        static_cast<uint64_t>(_mm_cvtsi128_si64(sums)) | static_cast<uint64_t>(_mm_extract_epi64(sums, 1));
    lists->light[lists->n_light] = static_cast<uint16_t>(kk);
    lists->n_light += any - 1 < 127;  // 1 .. 127
    if (any > 127) {
      widen_chunk<R>(lists->n_heavy * kChunkSteps, kChunk, a + kk, lda, lists);
      lists->heavy[lists->n_heavy++] = static_cast<uint16_t>(kk);
    }
  }
  lists->tail_steps = (k - kk) / kStep;
  if (kk < k) widen_chunk<R>(lists->n_heavy * kChunkSteps, k - kk, a + kk, lda, lists);
}

inline __m256i broadcast_4(const uint8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm256_set1_epi32(four);
}

// sum += pairs of products, 16 bit. As instructions for the reason given at multiply_add.
inline void multiply_add_16(__m256i& sum, __m256i e, __m256i b) {
  __m256i product;
  __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(e), "x"(b));
}

// The 16-bit sums of a chunk take 12 registers, so the 32-bit sums lie on the stack here: their loads and stores
// are not on the ports of the arithmetic.
template <size_t R, size_t T>
inline void light_chunk(const uint8_t* a, size_t lda, const int8_t* b, size_t b_stride, __m256i (&sum)[R][T]) {
  __m256i sum16[R][T];
#pragma GCC unroll 4
  for (size_t s = 0; s < kChunkSteps; ++s) {
    __m256i bv[T];
#pragma GCC unroll 2
    for (size_t t = 0; t < T; ++t) bv[t] = load_b(b + t * b_stride + s * kStep * kTileRows8);
#pragma GCC unroll 8
    for (size_t i = 0; i < R; ++i) {
      const __m256i e = broadcast_4(a + i * lda + s * kStep);
#pragma GCC unroll 2
      for (size_t t = 0; t < T; ++t) {
        if (s == 0)
          sum16[i][t] = _mm256_maddubs_epi16(e, bv[t]);
        else
          multiply_add_16(sum16[i][t], e, bv[t]);
      }
    }
  }
#pragma GCC unroll 8
  for (size_t i = 0; i < R; ++i)
#pragma GCC unroll 2
    for (size_t t = 0; t < T; ++t)
      sum[i][t] = _mm256_add_epi32(sum[i][t], _mm256_madd_epi16(sum16[i][t], _mm256_set1_epi16(1)));
}

// One step of a heavy chunk or of the tail: 4 k.
template <size_t R, size_t T>
inline void heavy_step(const ChunkLists<R>& lists, size_t step, const int8_t* b, size_t b_stride,
                       __m256i (&sum)[R][T]) {
  __m256i even[T], odd[T];
#pragma GCC unroll 2
  for (size_t t = 0; t < T; ++t) {
    const __m256i x = load_b(b + t * b_stride);
    even[t] = even_k(x);
    odd[t] = odd_k(x);
  }
  multiply_pairs<R, T>(lists.even + step, kPairs, even, sum);
  multiply_pairs<R, T>(lists.odd + step, kPairs, odd, sum);
}

template <size_t R, size_t T>
__attribute__((noinline)) void tiles(const ChunkLists<R>& lists, size_t k, const uint8_t* a, size_t lda,
                                     const int8_t* b, size_t b_stride, bool add, int32_t* c, size_t ldc) {
  __m256i sum[R][T];
#pragma GCC unroll 8
  for (size_t i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (size_t t = 0; t < T; ++t) sum[i][t] = _mm256_setzero_si256();
  for (size_t entry = 0; entry < lists.n_light; ++entry) {
    const size_t kk = lists.light[entry];
    light_chunk<R, T>(a + kk, lda, b + kk * kTileRows8, b_stride, sum);
  }
  size_t step = 0;
  for (size_t entry = 0; entry < lists.n_heavy; ++entry) {
    const int8_t* chunk = b + size_t{lists.heavy[entry]} * kTileRows8;
    for (size_t s = 0; s < kChunkSteps; ++s, ++step)
      heavy_step<R, T>(lists, step, chunk + s * kStep * kTileRows8, b_stride, sum);
  }
  const int8_t* tail = b + k / kChunk * kChunk * kTileRows8;
  for (size_t s = 0; s < lists.tail_steps; ++s, ++step)
    heavy_step<R, T>(lists, step, tail + s * kStep * kTileRows8, b_stride, sum);
  store_sums<R, T>(sum, add, c, ldc);
}

template <size_t R>
inline void row_block(size_t n, size_t k, const uint8_t* a, size_t lda, const int8_t* b, size_t b_stride, int32_t* c,
                      size_t ldc) {
  for (size_t k0 = 0; k0 < k; k0 += kDepth) {
    const size_t depth = k - k0 < kDepth ? k - k0 : kDepth;
    alignas(32) ChunkLists<R> lists;
    sort_chunks<R>(depth, a + k0, lda, &lists);
    const int8_t* tile = b + k0 * kTileRows8;
    size_t column = 0;
    for (; column + kTileRows8 < n; column += 2 * kTileRows8, tile += 2 * b_stride)
      tiles<R, 2>(lists, depth, a + k0, lda, tile, b_stride, k0 > 0, c + column, ldc);
    if (column < n) tiles<R, 1>(lists, depth, a + k0, lda, tile, b_stride, k0 > 0, c + column, ldc);
  }
}

}  // namespace

void gemm_u8s8s32_avx2(size_t m, size_t n, size_t k, const uint8_t* a, size_t lda, const int8_t* b_packed,
                       size_t b_stride, int32_t* c, size_t ldc) {
  for_row_blocks(m, [&](size_t i, auto r) {
    row_block<decltype(r)::value>(n, k, a + i * lda, lda, b_packed, b_stride, c + i * ldc, ldc);
  });
}

}  // namespace intattention
