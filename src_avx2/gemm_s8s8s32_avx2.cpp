// s8 x s8 -> s32 with AVX2, exact for every input; register map and bound in gemm_x8s8s32_avx2.h.
//
// 32 rows x 256 k of A are widened once (16 KB), then a pair of tiles is (8 KB), and all row blocks use both: per pair
// of tiles and 32 rows, k / 4 * (6 shifts + 4 stores) beside k / 2 * 128 multiplies and additions, 2 %.
//
// Rejected: vpmovsxbw in the loop (2 of 18 operations with 4 rows, and its lane pairs had to be joined: 17 MAC per
// cycle measured); vpmaddubsw on |a| and sign(b, a), also 24 MAC per cycle, but wrong for b = -128;
// a split of a into 4-bit halves for vpmaddubsw with 16-bit sums: 4.5 operations per 32 MAC, not 4.
#include "gemm_x8s8s32_avx2.h"
#include "kernels.h"

namespace intattention {
namespace {

constexpr size_t kPanelRows = 32;
constexpr size_t kDepth = 256;  // k per panel
constexpr size_t kSteps = kDepth / kStep;

// Row of the panel of A: the pairs (k0, k2) of each step, then the pairs (k1, k3).
constexpr size_t kPanelRow = 2 * kSteps;
struct alignas(32) PanelTile {
  int16_t steps[kSteps][2][16];  // [step][even, odd]
};

inline void store(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }

inline void widen_rows(size_t rows, size_t k, const int8_t* a, size_t lda, int32_t* panel) {
  constexpr size_t kBytes = 32;
  for (size_t i = 0; i < rows; ++i)
    for (size_t kk = 0; kk < k; kk += kBytes) {
      int8_t padded[kBytes] = {};
      const bool whole = kk + kBytes <= k;
      if (!whole) std::memcpy(padded, a + i * lda + kk, k - kk);
      const __m256i x = load_b(whole ? a + i * lda + kk : padded);
      store(panel + i * kPanelRow + kk / kStep, even_k(x));
      store(panel + i * kPanelRow + kSteps + kk / kStep, odd_k(x));
    }
}

inline void widen_tile(size_t steps, const int8_t* b, PanelTile* tile) {
  for (size_t s = 0; s < steps; ++s) {
    const __m256i x = load_b(b + s * kStep * kTileRows8);
    store(tile->steps[s][0], even_k(x));
    store(tile->steps[s][1], odd_k(x));
  }
}

template <size_t T>
inline void load_halves(const PanelTile* tiles, size_t step, size_t half, __m256i (&b)[T]) {
#pragma GCC unroll 2
  for (size_t t = 0; t < T; ++t) b[t] = _mm256_load_si256(reinterpret_cast<const __m256i*>(tiles[t].steps[step][half]));
}

// Not inlined, so that the compiler keeps the sums in registers.
template <size_t R, size_t T>
__attribute__((noinline)) void row_block(size_t steps, const int32_t* a, const PanelTile* tiles, bool add, int32_t* c,
                                         size_t ldc) {
  __m256i sum[R][T];
#pragma GCC unroll 8
  for (size_t i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (size_t t = 0; t < T; ++t) sum[i][t] = _mm256_setzero_si256();
  for (size_t s = 0; s < steps; ++s) {
    __m256i b[T];
    load_halves<T>(tiles, s, 0, b);
    multiply_pairs<R, T>(a + s, kPanelRow, b, sum);
    load_halves<T>(tiles, s, 1, b);
    multiply_pairs<R, T>(a + kSteps + s, kPanelRow, b, sum);
  }
  store_sums<R, T>(sum, add, c, ldc);
}

// T tiles against all rows of the panel.
template <size_t T>
inline void tile_group(size_t rows, size_t steps, const int32_t* panel, const int8_t* b, size_t b_stride, bool add,
                       int32_t* c, size_t ldc) {
  PanelTile tiles[T];
  for (size_t t = 0; t < T; ++t) widen_tile(steps, b + t * b_stride, &tiles[t]);
  for_row_blocks(rows, [&](size_t i, auto r) {
    row_block<decltype(r)::value, T>(steps, panel + i * kPanelRow, tiles, add, c + i * ldc, ldc);
  });
}

}  // namespace

void gemm_s8s8s32_avx2(size_t m, size_t n, size_t k, const int8_t* a, size_t lda, const int8_t* b_packed,
                       size_t b_stride, int32_t* c, size_t ldc) {
  alignas(32) int32_t panel[kPanelRows * kPanelRow];
  const size_t n_tiles = (n + kTileRows8 - 1) / kTileRows8;
  for (size_t i = 0; i < m; i += kPanelRows)
    for (size_t k0 = 0; k0 < k; k0 += kDepth) {
      const size_t rows = m - i < kPanelRows ? m - i : kPanelRows, depth = k - k0 < kDepth ? k - k0 : kDepth;
      widen_rows(rows, depth, a + i * lda + k0, lda, panel);
      const int8_t* b = b_packed + k0 * kTileRows8;
      int32_t* out = c + i * ldc;
      size_t tile = 0;
      for (; tile + 2 <= n_tiles; tile += 2)
        tile_group<2>(rows, depth / kStep, panel, b + tile * b_stride, b_stride, k0 > 0, out + tile * kTileRows8, ldc);
      if (tile < n_tiles)
        tile_group<1>(rows, depth / kStep, panel, b + tile * b_stride, b_stride, k0 > 0, out + tile * kTileRows8, ldc);
    }
}

}  // namespace intattention
