// vpdpbusd zmm: 16 sums, registers only.
#include <immintrin.h>

#include "peak.h"

namespace intattention::bench {

double peak_avx512vnni(size_t iterations) {
  constexpr size_t kSums = 16;
  __m512i sum[kSums];
#pragma GCC unroll 16
  for (size_t s = 0; s < kSums; ++s) sum[s] = _mm512_setzero_si512();
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  for (size_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (size_t s = 0; s < kSums; ++s) __asm__ volatile("vpdpbusd %1, %2, %0" : "+v"(sum[s]) : "v"(a), "v"(b));
  }
  return static_cast<double>(iterations) * kSums * 64;
}

}  // namespace intattention::bench
