#include "dispatch.h"
#include "portable/kernels.h"

namespace intattention {

const uint8_t kIndexSoftmaxLut[32] = {255, 206, 167, 135, 109, 88, 71, 57, 46, 38, 30, 25, 20, 16, 13, 10,
                                      8,   7,   6,   4,   4,   3,  2,  2,  2,  1,  1,  1,  1,  1,  0,  0};

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
