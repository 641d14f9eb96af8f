// vpmaddwd + vpaddd, the exact s8 multiply of AVX2 on widened operands: 12 sums, registers only.
#include <immintrin.h>

#include "peak.h"

namespace intattention::bench {

double peak_avx2(size_t iterations) {
  constexpr size_t kSums = 12;
  __m256i sum[kSums];
#pragma GCC unroll 16
  for (size_t s = 0; s < kSums; ++s) sum[s] = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi16(3), b = _mm256_set1_epi16(5);
  for (size_t i = 0; i < iterations; ++i) {
    __asm__ volatile("" : "+x"(a), "+x"(b));
#pragma GCC unroll 16
    for (size_t s = 0; s < kSums; ++s) {
      __m256i product;
      __asm__ volatile("vpmaddwd %1, %2, %0" : "=x"(product) : "x"(a), "x"(b));
      sum[s] = _mm256_add_epi32(sum[s], product);
    }
  }
#pragma GCC unroll 16
  for (size_t s = 0; s < kSums; ++s) __asm__ volatile("" ::"x"(sum[s]));
  return static_cast<double>(iterations) * kSums * 16;
}

}  // namespace intattention::bench
