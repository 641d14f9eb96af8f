// The x86-64 kernels: AVX2 + F16C, and what AVX-VNNI and AVX512-VNNI do better. No FMA: float results equal those
// of every other ISA, see docs/numerics.md section 6.
#pragma once

#include "kernel_table.h"

namespace intattention {

void gemm_s8s8s32_avx2(size_t m, size_t n, size_t k, const int8_t* a, size_t lda, const int8_t* b_packed,
                       size_t b_stride, int32_t* c, size_t ldc);
void gemm_u8s8s32_avx2(size_t m, size_t n, size_t k, const uint8_t* a, size_t lda, const int8_t* b_packed,
                       size_t b_stride, int32_t* c, size_t ldc);
void index_softmax_s32u8_avx2(size_t n, const int32_t* logits, const int16_t* key_ratio, const uint16_t* value_ratio,
                              IndexSoftmaxRow* row, int16_t* scratch, uint8_t* probs);
void gemm_w4a8_avx2(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                    float* y, size_t ldy);
void gemm_w8a8_avx2(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, float* y, size_t ldy);
void quantize_f32s8_avx2(size_t n_groups, size_t group, const float* x, int8_t* q, float* scale, float* scaled_sum);
void rmsnorm_f32_avx2(size_t n, const float* x, const float* weight, float eps, float* y);
void rope_f32_avx2(size_t n, const float* cos, const float* sin, float* x);
void swiglu_f32_avx2(size_t n, const float* gate, const float* up, float* y);

void gemm_s8s8s32_avxvnni(size_t m, size_t n, size_t k, const int8_t* a, size_t lda, const int8_t* b_packed,
                          size_t b_stride, int32_t* c, size_t ldc);
void gemm_u8s8s32_avxvnni(size_t m, size_t n, size_t k, const uint8_t* a, size_t lda, const int8_t* b_packed,
                          size_t b_stride, int32_t* c, size_t ldc);

void gemm_s8s8s32_avx512vnni(size_t m, size_t n, size_t k, const int8_t* a, size_t lda, const int8_t* b_packed,
                             size_t b_stride, int32_t* c, size_t ldc);
void gemm_u8s8s32_avx512vnni(size_t m, size_t n, size_t k, const uint8_t* a, size_t lda, const int8_t* b_packed,
                             size_t b_stride, int32_t* c, size_t ldc);

void gemm_w4a8_avxvnni(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                       float* y, size_t ldy);
void gemm_w8a8_avxvnni(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, float* y,
                       size_t ldy);
void gemm_w4a8_avx512vnni(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                          float* y, size_t ldy);
void gemm_w8a8_avx512vnni(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, float* y,
                          size_t ldy);
void index_softmax_s32u8_avx512vnni(size_t n, const int32_t* logits, const int16_t* key_ratio,
                                    const uint16_t* value_ratio, IndexSoftmaxRow* row, int16_t* scratch,
                                    uint8_t* probs);
}  // namespace intattention
