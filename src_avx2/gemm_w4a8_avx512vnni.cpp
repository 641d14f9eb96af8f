// int4-weight x int8-activation linear with AVX512-VNNI on packed tiles (r8k4, packing.h).
//
// Two tiles are joined to 16 columns per register. Nibbles are the unsigned operand of vpdpbusd, 4 broadcast
// activation bytes the signed one; the s32 sums of a group then go through the float steps of docs/numerics.md
// section 6 for 16 columns at once.
//
//   registers (R = 8): 8 float sums, 8 s32 sums, low and high nibbles, d, minimum, mask, 1 broadcast
//
//   per group of 32 k, 16 columns, R rows: about 4 joins + 12 unpack + 6 for scales + R * (8 vpdpbusd + 6 float)
//
// on the two 512-bit ports. R = 8: 134 operations, 67 cycles for 4096 MAC: 61 MAC per cycle (46 measured); the float
// steps are 36 % of it. R = 1: 36 operations, 18 cycles for 288 bytes of weights.
//
// Rejected: one tile in 32-byte registers (38 MAC per cycle: the float steps cost the same for half the columns).
#include <immintrin.h>

#include <cstring>

#include "kernels.h"

namespace intattention {
namespace {

constexpr size_t kRows = 8;
constexpr size_t kColumns = 2 * kTileRows;
constexpr size_t kScaleBytes = 16;  // 8 f16
constexpr size_t kQuantBytes = 128;

// The same bytes of two neighbouring tiles.
struct TilePair {
  const uint8_t *first, *second;

  __m512 f16() const {
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(first));
    const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(second));
    return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1));
  }
  __m512i quants(size_t offset) const {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first + offset));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second + offset));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  void advance(size_t bytes) {
    first += bytes;
    second += bytes;
  }
};

inline __m512i broadcast_4(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm512_set1_epi32(four);
}

// As an instruction, because GCC 12 copies the sums around _mm512_dpbusd_epi32.
inline void multiply_add(__m512i& sum, __m512i w, __m512i x) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
}

// Integer sums of one group for R rows of activations (x + i * ldx): 16 x s32 each, one weight row per lane.
template <size_t R>
inline void group_sums(const TilePair& w, const int8_t* x, size_t ldx, __m512i (&isum)[R]) {
  const __m512i low_mask = _mm512_set1_epi8(0x0f);
#pragma GCC unroll 8
  for (size_t i = 0; i < R; ++i) isum[i] = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (size_t v = 0; v < 4; ++v) {
    const __m512i raw = w.quants(v * 32);
    const __m512i low = _mm512_and_si512(raw, low_mask);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(raw, 4), low_mask);
#pragma GCC unroll 8
    for (size_t i = 0; i < R; ++i) {
      const int8_t* row = x + i * ldx + v * 4;
      multiply_add(isum[i], low, broadcast_4(row));
      multiply_add(isum[i], high, broadcast_4(row + 16));
    }
  }
}

// Two tiles for R rows; `columns` of the 16 are stored.
template <size_t R, bool HasMin>
__attribute__((noinline)) void tile_pair(size_t k, const QuantizedRows& x, size_t first, TilePair w, size_t columns,
                                         float* y, size_t ldy) {
  const size_t groups = k / kGroup;
  const int8_t* q = x.q + first * k;
  const float* scale = x.scale + first * groups;
  const float* scaled_sum = x.scaled_sum + first * groups;
  __m512 sum[R];
#pragma GCC unroll 8
  for (size_t i = 0; i < R; ++i) sum[i] = _mm512_setzero_ps();
  for (size_t g = 0; g < groups; ++g) {
    const __m512 d = w.f16();
    w.advance(kScaleBytes);
    __m512 minimum = _mm512_mul_ps(_mm512_set1_ps(-8.0f), d);
    if (HasMin) {
      minimum = w.f16();
      w.advance(kScaleBytes);
    }
    __m512i isum[R];
    group_sums<R>(w, q + g * kGroup, k, isum);
    w.advance(kQuantBytes);
#pragma GCC unroll 8
    for (size_t i = 0; i < R; ++i) {
      const __m512 sx = _mm512_set1_ps(scale[i * groups + g]), ssum = _mm512_set1_ps(scaled_sum[i * groups + g]);
      const __m512 product = _mm512_mul_ps(_mm512_mul_ps(d, sx), _mm512_cvtepi32_ps(isum[i]));
      sum[i] = _mm512_add_ps(sum[i], _mm512_add_ps(product, _mm512_mul_ps(minimum, ssum)));
    }
  }
  const __mmask16 stored = static_cast<__mmask16>((1u << columns) - 1);
#pragma GCC unroll 8
  for (size_t i = 0; i < R; ++i) _mm512_mask_storeu_ps(y + i * ldy, stored, sum[i]);
}

template <bool HasMin>
inline void gemm(size_t m, size_t n, size_t k, const QuantizedRows& x, const uint8_t* weights, float* y, size_t ldy) {
  const size_t tile_bytes = k / kGroup * (kQuantBytes + (HasMin ? 2 : 1) * kScaleBytes);
  for (size_t n0 = 0; n0 < n; n0 += kColumns, weights += 2 * tile_bytes) {
    const size_t columns = n - n0 < kColumns ? n - n0 : kColumns;
    // a last single tile fills both halves; the second is not stored
    const TilePair w{weights, columns > kTileRows ? weights + tile_bytes : weights};
    size_t i = 0;
    for (; i + kRows <= m; i += kRows) tile_pair<kRows, HasMin>(k, x, i, w, columns, y + i * ldy + n0, ldy);
    for (; i + 3 <= m; i += 3) tile_pair<3, HasMin>(k, x, i, w, columns, y + i * ldy + n0, ldy);
    for (; i < m; ++i) tile_pair<1, HasMin>(k, x, i, w, columns, y + i * ldy + n0, ldy);
  }
}

}  // namespace

void gemm_w4a8_avx512vnni(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                          float* y, size_t ldy) {
  if (has_min)
    gemm<true>(m, n, k, *x, weights, y, ldy);
  else
    gemm<false>(m, n, k, *x, weights, y, ldy);
}

}  // namespace intattention
