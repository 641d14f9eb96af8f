// float32 -> float16 (F16C), nearest even: one vcvtps2ph per 8. Bound by memory; used once per call on q, k and v.
#include <immintrin.h>

#include "kernels.h"

namespace intattention {

void narrow_f32f16_avx2(size_t n, const float* x, uint16_t* y) {
  for (size_t i = 0; i < n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

}  // namespace intattention
