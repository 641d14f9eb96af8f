// The ARM kernel tables, best first. Each table is the one below it with some entries replaced.
// Everything here is constexpr, so the tables are ready before any static constructor runs.
#include "kernels.h"

namespace intattention {
namespace {

constexpr KernelTable neon_table() {
  KernelTable table{};
  table.name = "neon";
  table.required_features = kFeatureNeon;
  table.attention_inner = 4;
  table.gemm_s8s8s32 = gemm_s8s8s32_neon;
  table.index_softmax_s32u8 = index_softmax_s32u8_neon;
  table.gemm_u8s8s32 = gemm_u8s8s32_neon;
  table.gemm_w4a8 = gemm_w4a8_neon;
  table.gemm_w8a8 = gemm_w8a8_neon;
  table.quantize_f32s8 = quantize_f32s8_neon;
  table.rmsnorm_f32 = rmsnorm_f32_neon;
  table.rope_f32 = rope_f32_neon;
  table.hadamard_f32 = hadamard_f32_neon;
  table.swiglu_f32 = swiglu_f32_neon;
  table.accumulate_s32f32 = accumulate_s32f32_neon;
  table.softmax_s32s8 = softmax_s32s8_neon;
  table.paper_softmax_s32u8 = paper_softmax_s32u8_neon;
  table.gemm_f32f32f32 = gemm_f32f32f32_neon;
  table.softmax_f32f32 = softmax_f32f32_neon;
  table.narrow_f32f16 = narrow_f32f16_neon;
  return table;
}

constexpr KernelTable dotprod_table() {
  KernelTable table = neon_table();
  table.name = "dotprod";
  // Every core with dotprod that we know of has float16 arithmetic too, but that is a feature of its own.
  table.required_features |= kFeatureDotprod | kFeatureFp16;
  table.gemm_s8s8s32 = gemm_s8s8s32_dotprod;
  table.index_softmax_s32u8 = index_softmax_s32u8_dotprod;
  table.gemm_u8s8s32 = gemm_u8s8s32_dotprod;
  table.gemm_w4a8 = gemm_w4a8_dotprod;
  table.gemm_w8a8 = gemm_w8a8_dotprod;
  table.gemm_f16f16f32 = gemm_f16f16f32_fp16;
  table.softmax_f32f16 = softmax_f32f16_fp16;
  return table;
}

constexpr KernelTable i8mm_table() {
  KernelTable table = dotprod_table();
  table.name = "i8mm";
  table.required_features |= kFeatureI8mm;
  table.attention_inner = 8;  // SMMLA takes 2 rows x 8 bytes: K and V are packed r8k8
  table.gemm_s8s8s32 = gemm_s8s8s32_i8mm;
  table.gemm_u8s8s32 = gemm_u8s8s32_i8mm;
  table.gemm_w4a8 = gemm_w4a8_i8mm;
  table.gemm_w8a8 = gemm_w8a8_i8mm;
  return table;
}

}  // namespace

// The extern declarations in kernels.h give these external linkage.
constexpr KernelTable kI8mmTable = i8mm_table();
constexpr KernelTable kDotprodTable = dotprod_table();
constexpr KernelTable kNeonTable = neon_table();

constexpr const KernelTable* const kArchTables[] = {&kI8mmTable, &kDotprodTable, &kNeonTable};
constexpr size_t kArchTableCount = sizeof(kArchTables) / sizeof(kArchTables[0]);

}  // namespace intattention
