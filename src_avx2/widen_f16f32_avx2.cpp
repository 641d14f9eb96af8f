// float16 -> float32 (F16C, exact): vcvtph2ps is 2 operations per 8, on the FMA ports and the shuffle port. One panel
// of 16 columns is widened per use by a tile of rows and read from L1 after that: 2 cycles per 8 values against the 6
// cycles x (rows / 6) of their multiply-adds.
//
// Rejected: widening inside the GEMM (the loads of B become 2 conversions per k, 7 cycles on the shuffle and FMA
// ports instead of 6, for each 6 rows); widening a whole block (128 KB of stores per tile through L2).
#include <immintrin.h>

#include "kernels.h"

namespace intattention {

void widen_f16f32_avx2(size_t n, const uint16_t* x, float* y) {
  for (size_t i = 0; i < n; i += 8)
    _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
}

}  // namespace intattention
