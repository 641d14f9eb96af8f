// What gemm_s8s8s32_avx512vnni and gemm_u8s8s32_avx512vnni share: a register tile of R rows of A (unsigned) and
// T tiles of 8 rows of B (signed, r8k8 of packing.h), multiplied by vpdpbusd.
//
// A 64-byte load of B is 8 rows x 8 k; 8 bytes of A, broadcast by the load port, meet all 8 rows at once:
//
//                          b[0]: row 0 k0-3 | row 0 k4-7 | row 1 k0-3 | ...     b[1]: the next tile
//   a[0] 8 k, broadcast    sum[0][0]  16 x s32                                  sum[0][1]
//   ...                    ...                                                  ...
//   a[7]                   sum[7][0]                                            sum[7][1]
//
// R = 8, T = 2: 16 sums + 2 of B + 1 of A of 32 registers. Per 8 k: 16 vpdpbusd on ports 0 and 5 (8 cycles) and 10
// loads (5 cycles): 128 MAC per cycle, the peak. At the end two vpermt2d and one add join the lane pairs of 16
// columns: 24 operations per tile pair, a tenth of the time at k = 128. Measured on Sapphire Rapids, m = 32: QK 60 to
// 77 % of peak (k = 64, 128), dense PV 70 to 82 % (the loop alone, without starts, chunk lists and joins: 91 %).
//
// Rejected: r8k4 with two tiles joined by vinserti64x4 (no lane pairs to add, but a port 0/5 operation per B load).
//
// Included by the two kernel files only; everything is in an anonymous namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

constexpr size_t kTileRows8 = 8;  // rows of B per tile
constexpr size_t kStep = 8;       // k per step, the table's attention_inner
constexpr size_t kRows = 8;       // rows of A per block

inline __m512i broadcast_8(const uint8_t* p) {
  int64_t eight;
  std::memcpy(&eight, p, sizeof eight);
  return _mm512_set1_epi64(eight);
}

inline __m512i load_b(const int8_t* p) { return _mm512_loadu_si512(p); }

// sum += 4 products per lane. As an instruction, because GCC 12 turns a loop of _mm512_dpbusd_epi32 over 16 sums into
// as many register copies as products (measured: half the speed).
inline void multiply_add(__m512i& sum, __m512i a, __m512i b) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}

// sum += A[R rows][8 k] x B[T tiles][8 k]
template <size_t R, size_t T>
inline void multiply_step(const uint8_t* a, size_t lda, const int8_t* b, size_t b_stride, __m512i (&sum)[R][T]) {
  __m512i bv[T];
#pragma GCC unroll 8
  for (size_t t = 0; t < T; ++t) bv[t] = load_b(b + t * b_stride);
#pragma GCC unroll 8
  for (size_t i = 0; i < R; ++i) {
    const __m512i av = broadcast_8(a + i * lda);
#pragma GCC unroll 8
    for (size_t t = 0; t < T; ++t) multiply_add(sum[i][t], av, bv[t]);
  }
}

// Joins the lane pairs of two tiles: 16 columns in order.
inline __m512i join_pairs(__m512i first, __m512i second) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return _mm512_add_epi32(_mm512_permutex2var_epi32(first, even, second),
                          _mm512_permutex2var_epi32(first, odd, second));
}

// Writes R rows of 8 T columns, or adds them to c.
template <size_t R, size_t T>
inline void store_sums(const __m512i (&sum)[R][T], bool add, int32_t* c, size_t ldc) {
  constexpr __mmask16 kColumns = T == 1 ? 0x00ff : 0xffff;
#pragma GCC unroll 8
  for (size_t i = 0; i < R; ++i) {
    int32_t* out = c + i * ldc;
    __m512i columns = join_pairs(sum[i][0], sum[i][T - 1]);
    if (add) columns = _mm512_add_epi32(columns, _mm512_maskz_loadu_epi32(kColumns, out));
    _mm512_mask_storeu_epi32(out, kColumns, columns);
  }
}

// A number of rows as a type, so that a generic lambda can hand it to a template.
template <size_t R>
struct Rows {
  static constexpr size_t value = R;
};

// Calls f(first row, Rows<count>) for all m rows: blocks of kRows, then one of the remainder.
template <typename F>
inline void for_row_blocks(size_t m, const F& f) {
  size_t i = 0;
  for (; i + kRows <= m; i += kRows) f(i, Rows<kRows>());
  switch (m - i) {
    case 7:
      return f(i, Rows<7>());
    case 6:
      return f(i, Rows<6>());
    case 5:
      return f(i, Rows<5>());
    case 4:
      return f(i, Rows<4>());
    case 3:
      return f(i, Rows<3>());
    case 2:
      return f(i, Rows<2>());
    case 1:
      return f(i, Rows<1>());
    default:
      return;
  }
}

}  // namespace
