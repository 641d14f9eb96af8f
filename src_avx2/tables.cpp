// The x86-64 tables, best first.
#include "dispatch.h"
#include "kernels.h"

namespace intattention {
namespace {

constexpr KernelTable kAvx2Table = {
    "avx2",
    kFeatureAvx2 | kFeatureF16c,
    4,
    gemm_s8s8s32_avx2,
    index_softmax_s32u8_avx2,
    gemm_u8s8s32_avx2,
    gemm_w4a8_avx2,
    gemm_w8a8_avx2,
    quantize_f32s8_avx2,
    rmsnorm_f32_avx2,
    rope_f32_avx2,
    swiglu_f32_avx2,
};

// 32-byte vpdpbusd in the VEX encoding: Alder Lake and later, with or without AVX512.
constexpr KernelTable kAvxVnniTable = {
    "avxvnni",
    kFeatureAvx2 | kFeatureF16c | kFeatureAvxVnni,
    4,
    gemm_s8s8s32_avxvnni,
    index_softmax_s32u8_avx2,
    gemm_u8s8s32_avxvnni,
    gemm_w4a8_avxvnni,
    gemm_w8a8_avxvnni,
    quantize_f32s8_avx2,
    rmsnorm_f32_avx2,
    rope_f32_avx2,
    swiglu_f32_avx2,
};

// 64-byte vpdpbusd: Ice Lake, Zen 4 and later. r8k8, so that one load is 8 rows x 8 k.
constexpr KernelTable kAvx512VnniTable = {
    "avx512vnni",
    kFeatureAvx2 | kFeatureF16c | kFeatureAvx512Vnni,
    8,
    gemm_s8s8s32_avx512vnni,
    index_softmax_s32u8_avx512vnni,
    gemm_u8s8s32_avx512vnni,
    gemm_w4a8_avx512vnni,
    gemm_w8a8_avx512vnni,
    quantize_f32s8_avx2,
    rmsnorm_f32_avx2,
    rope_f32_avx2,
    swiglu_f32_avx2,
};

}  // namespace

const KernelTable* const kArchTables[] = {&kAvx512VnniTable, &kAvxVnniTable, &kAvx2Table};
const size_t kArchTableCount = sizeof kArchTables / sizeof kArchTables[0];

}  // namespace intattention
