// vpdpbusd ymm (VEX): 12 sums, registers only.
#include <immintrin.h>

#include "peak.h"

namespace intattention::bench {

double peak_avxvnni(size_t iterations) {
  constexpr size_t kSums = 12;
  __m256i sum[kSums];
#pragma GCC unroll 16
  for (size_t s = 0; s < kSums; ++s) sum[s] = _mm256_setzero_si256();
  const __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
  for (size_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (size_t s = 0; s < kSums; ++s) __asm__ volatile("%{vex%} vpdpbusd %1, %2, %0" : "+x"(sum[s]) : "x"(a), "x"(b));
  }
  return static_cast<double>(iterations) * kSums * 32;
}

}  // namespace intattention::bench
