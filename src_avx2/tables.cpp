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
constexpr KernelTable kAvx512Table = avx512_table();

}  // namespace

const KernelTable* const kArchTables[] = {&kAvx512Table, &kAvx2Table};
const size_t kArchTableCount = sizeof kArchTables / sizeof kArchTables[0];

}  // namespace intattention
