// What the 32-byte attention gemms share: rows in blocks of at most 6, and the store of a block's sums.
// Included by kernel files only; everything is in an anonymous namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace {

constexpr size_t kRows = 6;       // rows of A per block: 6 x 2 sums, 2 B vectors and a broadcast fill 16 registers
constexpr size_t kTileRows8 = 8;  // rows of B per tile

// Writes R rows of 8 T columns, or adds them to c.
template <size_t R, size_t T>
inline void store_sums(const __m256i (&sum)[R][T], bool add, int32_t* c, size_t ldc) {
#pragma GCC unroll 8
  for (size_t i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (size_t t = 0; t < T; ++t) {
      __m256i* out = reinterpret_cast<__m256i*>(c + i * ldc + t * kTileRows8);
      _mm256_storeu_si256(out, add ? _mm256_add_epi32(sum[i][t], _mm256_loadu_si256(out)) : sum[i][t]);
    }
}

// A number of rows as a type, so that a generic lambda can hand it to a template.
template <size_t R>
struct Rows {
  static constexpr size_t value = R;
};

// Calls f(first row, Rows<count>) for all m rows in blocks of at most 6; 7 to 11 rows are split evenly: a block of 1 or
// 2 rows has too few sums to hide the latency, and the work per B vector is shared by the rows of a block.
template <typename F>
inline void for_row_blocks(size_t m, const F& f) {
  for (size_t i = 0, rows; i < m; i += rows) {
    const size_t left = m - i;
    rows = left >= 2 * kRows ? kRows : left > kRows ? (left + 1) / 2 : left;
    switch (rows) {
      case 6:
        f(i, Rows<6>());
        break;
      case 5:
        f(i, Rows<5>());
        break;
      case 4:
        f(i, Rows<4>());
        break;
      case 3:
        f(i, Rows<3>());
        break;
      case 2:
        f(i, Rows<2>());
        break;
      default:
        f(i, Rows<1>());
        break;
    }
  }
}

}  // namespace
