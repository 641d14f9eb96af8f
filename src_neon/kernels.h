// Declarations of every ARM kernel; what each computes is said in kernel_table.h. Each lives in the
// file of its name. Declarations only: this header is included by files with different -march flags.
#pragma once

#include "kernel_table.h"

namespace intattention {

// Armv8-A baseline (Cortex-A72 and up).
void gemm_s8s8s32_neon(size_t m, size_t n, size_t k, const int8_t* a, size_t lda, const int8_t* b_packed,
                       size_t b_stride, int32_t* c, size_t ldc);
void gemm_u8s8s32_neon(size_t m, size_t n, size_t k, const uint8_t* a, size_t lda, const int8_t* b_packed,
                       size_t b_stride, int32_t* c, size_t ldc);
void index_softmax_s32u8_neon(size_t n, const int32_t* logits, const IndexSoftmaxKeys* keys, IndexSoftmaxRow* row,
                              int16_t* scratch, uint8_t* probs);
void gemm_w4a8_neon(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                    float* y, size_t ldy);
void gemm_w8a8_neon(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, float* y, size_t ldy);
void quantize_f32s8_neon(size_t n_groups, size_t group, const float* x, int8_t* q, float* scale, int32_t* sum);
void rmsnorm_f32_neon(size_t n, const float* x, const float* weight, float eps, float* y);
void rope_f32_neon(size_t n, const float* cos, const float* sin, float* x);
void hadamard_f32_neon(size_t n, size_t size, const float* x, float* y);
void swiglu_f32_neon(size_t n, const float* gate, const float* up, float* y);
void accumulate_s32f32_neon(size_t n, float decay, float scale, const int32_t* sum, float* out);
void softmax_s32s8_neon(size_t n, const int32_t* logits, FloatSoftmaxRow* row, int8_t* probs);
uint32_t paper_softmax_s32u8_neon(size_t n, const int32_t* logits, size_t begin, size_t end, const PaperIndex* index,
                                  uint8_t* probs);
void gemm_f32f32f32_neon(size_t m, size_t n, size_t k, const float* a, size_t lda, const float* b_packed,
                         size_t b_stride, bool add, float* c, size_t ldc);
void softmax_f32f32_neon(size_t n, const float* logits, SoftmaxRow* row, float* probs);
void narrow_f32f16_neon(size_t n, const float* x, uint16_t* y);

// Armv8.2-A with FEAT_FP16 (the same cores).
void gemm_f16f16f32_fp16(size_t m, size_t n, size_t k, const uint16_t* a, size_t lda, const uint16_t* b_packed,
                         size_t b_stride, bool add, float* c, size_t ldc);
void softmax_f32f16_fp16(size_t n, const float* logits, SoftmaxRow* row, uint16_t* probs);

// Armv8.2-A with FEAT_DotProd (Cortex-A55, A76, A78AE, Apple M1).
void gemm_s8s8s32_dotprod(size_t m, size_t n, size_t k, const int8_t* a, size_t lda, const int8_t* b_packed,
                          size_t b_stride, int32_t* c, size_t ldc);
void gemm_u8s8s32_dotprod(size_t m, size_t n, size_t k, const uint8_t* a, size_t lda, const int8_t* b_packed,
                          size_t b_stride, int32_t* c, size_t ldc);
void index_softmax_s32u8_dotprod(size_t n, const int32_t* logits, const IndexSoftmaxKeys* keys, IndexSoftmaxRow* row,
                                 int16_t* scratch, uint8_t* probs);
void gemm_w4a8_dotprod(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                       float* y, size_t ldy);
void gemm_w8a8_dotprod(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, float* y,
                       size_t ldy);

// With FEAT_I8MM (Apple M2, Cortex-A510/A710, Neoverse N2).
void gemm_s8s8s32_i8mm(size_t m, size_t n, size_t k, const int8_t* a, size_t lda, const int8_t* b_packed,
                       size_t b_stride, int32_t* c, size_t ldc);
void gemm_u8s8s32_i8mm(size_t m, size_t n, size_t k, const uint8_t* a, size_t lda, const int8_t* b_packed,
                       size_t b_stride, int32_t* c, size_t ldc);
void gemm_w4a8_i8mm(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, bool has_min,
                    float* y, size_t ldy);
void gemm_w8a8_i8mm(size_t m, size_t n, size_t k, const QuantizedRows* x, const uint8_t* weights, float* y, size_t ldy);

// Best first; dispatch takes the first one the CPU can run.
extern const KernelTable kI8mmTable;
extern const KernelTable kDotprodTable;
extern const KernelTable kNeonTable;
extern const KernelTable* const kArchTables[];
extern const size_t kArchTableCount;

}  // namespace intattention
