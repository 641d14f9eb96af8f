// Small helpers of the ARM kernels. Everything is `static inline` and uses the Armv8-A baseline only:
// the header is compiled with several -march flags, and nothing may be merged across them.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace intattention {

// 4 bytes, repeated in every 32-bit lane. Reads exactly 4 bytes, at any alignment.
static inline int8x16_t load_dup4(const void* p) {
  uint32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return vreinterpretq_s8_u32(vdupq_n_u32(bits));
}

// Which chunks of 16 k are not all zero in `rows` rows of A, as offsets along k into list; returns their number.
// k is a multiple of 16, at most 65536: list holds k / 16 entries.
static inline size_t nonzero_chunks(size_t rows, size_t k, const uint8_t* a, size_t lda, uint16_t* list) {
  size_t count = 0;
  for (size_t i = 0; i < k; i += 16) {
    uint8x16_t any = vld1q_u8(a + i);
    for (size_t r = 1; r < rows; ++r) any = vorrq_u8(any, vld1q_u8(a + r * lda + i));
    list[count] = static_cast<uint16_t>(i);
    count += (vmaxvq_u8(any) + 255u) >> 8;  // 0 or 1
  }
  return count;
}

// 4 half floats as float32 (exact).
static inline float32x4_t load_f16x4(const uint8_t* p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }

// Columns first .. first + 3 of a row of y that has n; 0 beyond.
static inline float32x4_t load_columns(const float* y, size_t n, size_t first) {
  if (n >= first + 4) return vld1q_f32(y + first);
  float columns[4] = {};
  for (size_t i = first; i < n; ++i) columns[i - first] = y[i];
  return vld1q_f32(columns);
}

static inline void store_columns(float* y, size_t n, size_t first, float32x4_t value) {
  if (n >= first + 4) {
    vst1q_f32(y + first, value);
    return;
  }
  float columns[4];
  vst1q_f32(columns, value);
  for (size_t i = first; i < n; ++i) y[i] = columns[i - first];
}

// exp_f32.h with vectors: the same operations in the same order, hence the same bits.
static inline float32x4_t exp_f32x4(float32x4_t x) {
  const float32x4_t low = vdupq_n_f32(-87.0f), high = vdupq_n_f32(88.0f);
  const float32x4_t round = vdupq_n_f32(12582912.0f);
  x = vbslq_f32(vcgtq_f32(x, low), x, low);  // a NaN compares false and becomes -87, as in exp_f32
  x = vbslq_f32(vcltq_f32(x, high), x, high);
  const float32x4_t n = vsubq_f32(vaddq_f32(vmulq_f32(x, vdupq_n_f32(1.44269504f)), round), round);
  float32x4_t r = vsubq_f32(x, vmulq_f32(n, vdupq_n_f32(0.693359375f)));
  r = vsubq_f32(r, vmulq_f32(n, vdupq_n_f32(-2.12194440e-4f)));
  float32x4_t p = vdupq_n_f32(1.0f / 720.0f);
  p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(1.0f / 120.0f));
  p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(1.0f / 24.0f));
  p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(1.0f / 6.0f));
  p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(0.5f));
  p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(1.0f));
  p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(1.0f));
  const int32x4_t exponent = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
  return vmulq_f32(p, vreinterpretq_f32_s32(exponent));
}

}  // namespace intattention
