// exp for float32 as a fixed sequence of multiplies and adds, so that every ISA gives the same bits.
//
// x is clamped to [-87, 88]; n = rne(x * log2(e)); r = x - n*ln2 in two parts (Cody-Waite); e^r by its
// degree-6 Taylor polynomial in Horner form (|r| <= ln2/2: the next term, r^7/5040, is below 1.2e-7
// relative); the result is scaled by 2^n through the exponent bits. Largest relative error measured
// over all floats of the range: see tests/test_float_kernels.py.
//
// Baseline files only: src_avx2 and src_neon write the same sequence with vectors.
#pragma once

#include <cstdint>
#include <cstring>

namespace intattention {

inline float exp_f32(float x) {
  constexpr float kLog2e = 1.44269504f;
  constexpr float kLn2Hi = 0.693359375f;     // 9 bits, so n * kLn2Hi is exact
  constexpr float kLn2Lo = -2.12194440e-4f;  // ln2 - kLn2Hi
  constexpr float kRound = 12582912.0f;      // 1.5 * 2^23: adding it rounds to nearest even
  x = x > -87.0f ? x : -87.0f;
  x = x < 88.0f ? x : 88.0f;
  const float n = (x * kLog2e + kRound) - kRound;
  float r = x - n * kLn2Hi;
  r = r - n * kLn2Lo;
  float p = 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return p * scale;
}

}  // namespace intattention
