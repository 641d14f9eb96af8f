#include "dispatch.h"
#include "portable/kernels.h"

namespace intattention {

const uint8_t kPaperLut[32] = {255, 206, 167, 135, 109, 88, 71, 57, 46, 38, 30, 25, 20, 16, 13, 10,
                               8,   7,   6,   4,   4,   3,  2,  2,  2,  1,  1,  1,  1,  1,  0,  0};

const uint8_t kIndexSoftmaxLut[64] = {255, 230, 207, 186, 168, 151, 136, 122, 110, 99, 89, 81, 73, 65, 59, 53,
                                      48,  43,  39,  35,  31,  28,  25,  23,  21,  19, 17, 15, 14, 12, 11, 10,
                                      9,   8,   7,   7,   6,   5,   5,   4,   4,   3,  3,  3,  3,  2,  2,  2,
                                      2,   2,   1,   1,   1,   1,   1,   1,   1,   1,  1,  1,  1,  1,  1,  0};

const KernelTable kPortableTable = {
    "portable",
    0,
    4,
    gemm_s8s8s32_portable,
    index_softmax_s32u8_portable,
    gemm_u8s8s32_portable,
    gemm_w4a8_portable,
    gemm_w8a8_portable,
    quantize_f32s8_portable,
    rmsnorm_f32_portable,
    rope_f32_portable,
    hadamard_f32_portable,
    swiglu_f32_portable,
    accumulate_s32f32_portable,
    softmax_s32s8_portable,
    paper_softmax_s32u8_portable,
    gemm_f32f32f32_portable,
    softmax_f32f32_portable,
    nullptr,  // no float16
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace intattention
