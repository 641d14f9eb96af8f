// The x86-64 tables, best first.
#include "dispatch.h"
#include "kernels.h"

namespace intattention {
namespace {

constexpr KernelTable kAvx2Table = {
    "avx2",
    kFeatureAvx2 | kFeatureF16c | kFeatureFma,
    4,
    gemm_s8s8s32_avx2,
    index_softmax_s32u8_avx2,
    gemm_u8s8s32_avx2,
    gemm_w4a8_avx2,
    gemm_w8a8_avx2,
    quantize_f32s8_avx2,
    rmsnorm_f32_avx2,
    rope_f32_avx2,
    hadamard_f32_avx2,
    swiglu_f32_avx2,
    accumulate_s32f32_avx2,
    softmax_s32s8_avx2,
    paper_softmax_s32u8_avx2,
    gemm_f32f32f32_avx2,
    softmax_f32f32_avx2,
    narrow_f32f16_avx2,
    widen_f16f32_avx2,
    nullptr,  // gemm_f16f16f32: no float16 arithmetic, float16 storage
    nullptr,
};

constexpr KernelTable avx512_table() {
  KernelTable table = kAvx2Table;
  table.name = "avx512";
  table.required_features |= kFeatureAvx512F;
  table.gemm_f32f32f32 = gemm_f32f32f32_avx512;
  table.softmax_f32f32 = softmax_f32f32_avx512;
  return table;
}

// 32-byte vpdpbusd in the VEX encoding: Alder Lake and later, with or without AVX512.
constexpr KernelTable avxvnni_table() {
  KernelTable table = kAvx2Table;
  table.name = "avxvnni";
  table.required_features |= kFeatureAvxVnni;
  table.gemm_s8s8s32 = gemm_s8s8s32_avxvnni;
  table.gemm_u8s8s32 = gemm_u8s8s32_avxvnni;
  table.gemm_w4a8 = gemm_w4a8_avxvnni;
  table.gemm_w8a8 = gemm_w8a8_avxvnni;
  return table;
}

// 64-byte vpdpbusd: Ice Lake, Zen 4 and later. r8k8, so that one load is 8 rows x 8 k.
constexpr KernelTable avx512vnni_table() {
  KernelTable table = avx512_table();
  table.name = "avx512vnni";
  table.required_features |= kFeatureAvx512Vnni;
  table.attention_inner = 8;
  table.gemm_s8s8s32 = gemm_s8s8s32_avx512vnni;
  table.index_softmax_s32u8 = index_softmax_s32u8_avx512vnni;
  table.gemm_u8s8s32 = gemm_u8s8s32_avx512vnni;
  table.gemm_w4a8 = gemm_w4a8_avx512vnni;
  table.gemm_w8a8 = gemm_w8a8_avx512vnni;
  return table;
}

constexpr KernelTable kAvx512Table = avx512_table();
constexpr KernelTable kAvxVnniTable = avxvnni_table();
constexpr KernelTable kAvx512VnniTable = avx512vnni_table();

}  // namespace

const KernelTable* const kArchTables[] = {&kAvx512VnniTable, &kAvxVnniTable, &kAvx512Table, &kAvx2Table};
const size_t kArchTableCount = sizeof kArchTables / sizeof kArchTables[0];

}  // namespace intattention
