// s8 x s8 -> s32 with AVX-VNNI, exact for every input; register map and cost in gemm_x8s8s32_avxvnni.h.
//
// vpdpbusd wants its first operand unsigned: A is biased, a ^ 0x80 = a + 128, and 128 * (sum of B's row) is taken
// off again. The sums start at minus that, which one more vpdpbusd per B vector yields; it is made once per pair of
// tiles and 32 rows of A. Intermediate sums may wrap in s32, the result cannot.
//
// Order: 32 rows x 512 k of A are biased into a panel (16 KB, L1), then pairs of tiles, then row blocks: B is read
// once per 32 rows.
#include "gemm_x8s8s32_avxvnni.h"
#include "kernels.h"

namespace intattention {
namespace {

constexpr size_t kPanelRows = 32;
constexpr size_t kDepth = 512;  // k per panel
using Panel = uint8_t[kDepth];

// k is a multiple of 4; the compiler makes 32-byte steps of it.
inline void bias_rows(size_t rows, size_t k, const int8_t* a, size_t lda, Panel* panel) {
  for (size_t i = 0; i < rows; ++i)
    for (size_t kk = 0; kk < k; ++kk) panel[i][kk] = static_cast<uint8_t>(a[i * lda + kk] ^ INT8_MIN);
}

// What the sums of one tile start at: -128 * (sum of each lane's bytes). Two chains hide vpdpbusd's latency.
inline __m256i start_of_sums(size_t k, const int8_t* b) {
  const __m256i bias = _mm256_set1_epi8(INT8_MIN);  // 128 as unsigned
  __m256i even = _mm256_setzero_si256(), odd = even;
  size_t kk = 0;
  for (; kk + 2 * kStep <= k; kk += 2 * kStep) {
    even = _mm256_dpbusd_avx_epi32(even, bias, load_b(b + kk * kTileRows8));
    odd = _mm256_dpbusd_avx_epi32(odd, bias, load_b(b + (kk + kStep) * kTileRows8));
  }
  if (kk < k) even = _mm256_dpbusd_avx_epi32(even, bias, load_b(b + kk * kTileRows8));
  return _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_add_epi32(even, odd));
}

template <size_t R, size_t T>
__attribute__((noinline)) void row_block(size_t k, const Panel* panel, const int8_t* b, size_t b_stride,
                                         const __m256i (&start)[T], bool add, int32_t* c, size_t ldc) {
  __m256i sum[R][T];
#pragma GCC unroll 8
  for (size_t i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (size_t t = 0; t < T; ++t) sum[i][t] = start[t];
  for (size_t kk = 0; kk < k; kk += kStep)
    multiply_step<R, T>(panel[0] + kk, kDepth, b + kk * kTileRows8, b_stride, sum);
  store_sums<R, T>(sum, add, c, ldc);
}

// T tiles against all rows of the panel.
template <size_t T>
inline void tiles(size_t rows, size_t k, const Panel* panel, const int8_t* b, size_t b_stride, bool add, int32_t* c,
                  size_t ldc) {
  __m256i start[T];
#pragma GCC unroll 8
  for (size_t t = 0; t < T; ++t) start[t] = start_of_sums(k, b + t * b_stride);
  for_row_blocks(rows, [&](size_t i, auto r) {
    row_block<decltype(r)::value, T>(k, panel + i, b, b_stride, start, add, c + i * ldc, ldc);
  });
}

}  // namespace

void gemm_s8s8s32_avxvnni(size_t m, size_t n, size_t k, const int8_t* a, size_t lda, const int8_t* b_packed,
                          size_t b_stride, int32_t* c, size_t ldc) {
  alignas(64) Panel panel[kPanelRows];
  for (size_t i = 0; i < m; i += kPanelRows)
    for (size_t k0 = 0; k0 < k; k0 += kDepth) {
      const size_t rows = m - i < kPanelRows ? m - i : kPanelRows, depth = k - k0 < kDepth ? k - k0 : kDepth;
      bias_rows(rows, depth, a + i * lda + k0, lda, panel);
      const int8_t* b = b_packed + k0 * kTileRows8;
      int32_t* out = c + i * ldc;
      const size_t n_tiles = (n + kTileRows8 - 1) / kTileRows8;
      size_t tile = 0;
      for (; tile + 2 <= n_tiles; tile += 2)
        tiles<2>(rows, depth, panel, b + tile * b_stride, b_stride, k0 > 0, out + tile * kTileRows8, ldc);
      if (tile < n_tiles)
        tiles<1>(rows, depth, panel, b + tile * b_stride, b_stride, k0 > 0, out + tile * kTileRows8, ldc);
    }
}

}  // namespace intattention
