// u8 x s8 -> s32 with AVX2, exact for every input. vpmaddubsw adds two products in 16 bits, and its sums over some k
// fit as long as the E' that meet in a 16-bit lane add up to at most 256: 256 * -128 = -32768. Per row block of E' each
// chunk of 16 k is one of
//
//   zero    in every row: skipped for all tiles of V
//   light   at most 256 per lane over the 4 steps of the chunk, in every row:
//           4 vpmaddubsw + 3 vpaddw + vpmaddwd + vpaddd per row and tile, 9 operations for 128 MAC
//   mixed   the rest, whose two halves of 8 k are
//     middle  at most 256 over the 2 steps of the half: 2 vpmaddubsw + vpaddw + vpmaddwd + vpaddd, 5 for 64 MAC
//     heavy   the rest: widened to s16, 8 for 64 MAC (gemm_x8s8s32_avx2.h)
//
// Keys of Gaussian logits of deviation 2, 6 rows: 58 % of the chunks are light, 65 % of the other halves middle, 10.3
// operations per 128 MAC on average; deviation 1: 2 and 53 %, 12.8; deviation 3: 78 and 74 %, 9.6.
//
// Rejected: the sums of 8 bytes of vpsadbw as the test (one operation per row, but it adds both lanes: 22 % light
// instead of 58); E' = low + 32 * high with the low parts (0..31, every chunk light) dense and the high parts row by
// row in the steps that hold one: flat rows 7 to 13 % slower, and no gain in the whole attention.
#include "gemm_x8s8s32_avx2.h"
#include "kernels.h"

namespace intattention {
namespace {

constexpr size_t kChunk = 16;
constexpr size_t kHalf = 8;
constexpr size_t kDepth = 512;  // k per pass; attention never has more than 256
constexpr size_t kChunks = kDepth / kChunk;
constexpr size_t kHalves = kDepth / kHalf;
constexpr size_t kChunkSteps = kChunk / kStep;
constexpr size_t kHalfSteps = kHalf / kStep;
constexpr size_t kPairs = kDepth / kStep;  // even (or odd) pairs of a row
constexpr int kLaneLimit = 256;            // 256 * -128 is the least s16

// The chunks of R rows of A: where the light chunks, middle and heavy halves start, and the heavy ones widened.
template <size_t R>
struct ChunkLists {
  size_t n_light = 0, n_middle = 0, n_heavy = 0, tail_steps = 0;
  uint16_t light[kChunks + 1], middle[kHalves + 1], heavy[kHalves + 1];  // first k of each
  int32_t even[R * kPairs], odd[R * kPairs];                             // pairs of the heavy halves, then of the tail
};

// Pairs (k0, k2) and (k1, k3) of up to 8 k.
template <size_t R>
inline void widen_half(size_t first_step, size_t k, const uint8_t* a, size_t lda, ChunkLists<R>* lists) {
  for (size_t i = 0; i < R; ++i) {
    uint64_t x = 0;
    std::memcpy(&x, a + i * lda, k < kHalf ? k : kHalf);
    const uint64_t even = x & 0x00ff00ff00ff00ff, odd = x >> 8 & 0x00ff00ff00ff00ff;
    std::memcpy(lists->even + i * kPairs + first_step, &even, sizeof even);
    std::memcpy(lists->odd + i * kPairs + first_step, &odd, sizeof odd);
  }
}

// Bit pairs of the 16-bit lanes of two chunks (k 0..15 and 16..31): the greatest of R rows exceed kLaneLimit.
struct Excess {
  uint32_t zero, chunk, half;
};

// The sums of E' in a lane: of a half in the low 4 bytes of each 8, of a chunk in the low 4 bytes of each 16. The
// other lanes hold parts of them, so that the test may look at every lane.
template <size_t R>
inline Excess lane_excess(const uint8_t* a, size_t lda, bool two_chunks) {
  __m256i chunk = _mm256_setzero_si256(), half = chunk;
#pragma GCC unroll 8
  for (size_t i = 0; i < R; ++i) {
    const auto* p = reinterpret_cast<const __m128i*>(a + i * lda);
    const __m256i x = two_chunks ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))
                                 : _mm256_zextsi128_si256(_mm_loadu_si128(p));
    const __m256i step = _mm256_maddubs_epi16(x, _mm256_set1_epi8(1));
    const __m256i two = _mm256_add_epi16(step, _mm256_srli_epi64(step, 32));
    half = _mm256_max_epi16(half, two);
    chunk = _mm256_max_epi16(chunk, _mm256_add_epi16(two, _mm256_srli_si256(two, 8)));
  }
  const __m256i limit = _mm256_set1_epi16(kLaneLimit);
  const auto mask = [](__m256i x) { return static_cast<uint32_t>(_mm256_movemask_epi8(x)); };
  return {mask(_mm256_cmpeq_epi16(chunk, _mm256_setzero_si256())), mask(_mm256_cmpgt_epi16(chunk, limit)),
          mask(_mm256_cmpgt_epi16(half, limit))};
}

template <size_t R>
inline void add_half(bool heavy, size_t kk, const uint8_t* a, size_t lda, ChunkLists<R>* lists) {
  if (heavy) {
    widen_half<R>(lists->n_heavy * kHalfSteps, kHalf, a + kk, lda, lists);
    lists->heavy[lists->n_heavy++] = static_cast<uint16_t>(kk);
  } else {
    lists->middle[lists->n_middle++] = static_cast<uint16_t>(kk);
  }
}

// One chunk; bits 0..15 of `excess` are its own.
template <size_t R>
inline void add_chunk(Excess excess, size_t kk, const uint8_t* a, size_t lda, ChunkLists<R>* lists) {
  constexpr uint32_t kChunkBits = 0xffff, kHalfBits = 0xff;
  if ((excess.chunk & kChunkBits) == 0) {
    lists->light[lists->n_light] = static_cast<uint16_t>(kk);
    lists->n_light += (excess.zero & kChunkBits) != kChunkBits;
  } else {
    add_half<R>((excess.half & kHalfBits) != 0, kk, a, lda, lists);
    add_half<R>((excess.half >> kHalf & kHalfBits) != 0, kk + kHalf, a, lda, lists);
  }
}

template <size_t R>
inline void sort_chunks(size_t k, const uint8_t* a, size_t lda, ChunkLists<R>* lists) {
  size_t kk = 0;
  while (kk + kChunk <= k) {
    const bool two_chunks = kk + 2 * kChunk <= k;
    Excess excess = lane_excess<R>(a + kk, lda, two_chunks);
    for (size_t chunk = 0; chunk < 1 + size_t{two_chunks}; ++chunk, kk += kChunk) {
      add_chunk<R>(excess, kk, a, lda, lists);
      excess = {excess.zero >> kChunk, excess.chunk >> kChunk, excess.half >> kChunk};
    }
  }
  lists->tail_steps = (k - kk) / kStep;
  for (size_t step = lists->n_heavy * kHalfSteps; kk < k; kk += kHalf, step += kHalfSteps)
    widen_half<R>(step, k - kk, a + kk, lda, lists);
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

// 12 sums and 2 vectors of V leave 2 registers, in each of which a broadcast of E' becomes its product with V; the ones
// stay in memory. As instructions for the reason given at multiply_add.
template <size_t R, size_t T>
inline void middle_half(const uint8_t* a, size_t lda, const int8_t* b, size_t b_stride, __m256i (&sum)[R][T]) {
  alignas(32) static constexpr int16_t kOnes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
#pragma GCC unroll 2
  for (size_t t = 0; t < T; ++t) {
    const __m256i first = load_b(b + t * b_stride), second = load_b(b + t * b_stride + kStep * kTileRows8);
#pragma GCC unroll 8
    for (size_t i = 0; i < R; ++i) {
      __m256i x = broadcast_4(a + i * lda), y = broadcast_4(a + i * lda + kStep);
      __asm__(
          "vpmaddubsw %3, %1, %1\n\tvpmaddubsw %4, %2, %2\n\tvpaddw %2, %1, %1\n\t"
          "vpmaddwd %5, %1, %1\n\tvpaddd %1, %0, %0"
          : "+x"(sum[i][t]), "+x"(x), "+x"(y)
          : "x"(first), "x"(second), "m"(kOnes));
    }
  }
}

// One step of a heavy half or of the tail: 4 k.
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
  for (size_t entry = 0; entry < lists.n_middle; ++entry) {
    const size_t kk = lists.middle[entry];
    middle_half<R, T>(a + kk, lda, b + kk * kTileRows8, b_stride, sum);
  }
  size_t step = 0;
  for (size_t entry = 0; entry < lists.n_heavy; ++entry) {
    const int8_t* half = b + size_t{lists.heavy[entry]} * kTileRows8;
    for (size_t s = 0; s < kHalfSteps; ++s, ++step)
      heavy_step<R, T>(lists, step, half + s * kStep * kTileRows8, b_stride, sum);
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
