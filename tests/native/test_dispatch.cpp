// The tables themselves: complete, distinct, in order; and the choice among them fails loudly.
#include <algorithm>
#include <set>

#include "error.h"
#include "kernel_test.h"

namespace intattention::testing {
namespace {

TEST(Tables, AreComplete) {
  std::set<std::string> names;
  for (const KernelTable* table : built_tables()) {
    SCOPED_TRACE(table->name);
    EXPECT_TRUE(names.insert(table->name).second);
    EXPECT_TRUE(table->attention_inner == 4 || table->attention_inner == 8);
    EXPECT_TRUE(table->gemm_s8s8s32 && table->index_softmax_s32u8 && table->gemm_u8s8s32 && table->gemm_w4a8 &&
                table->gemm_w8a8 && table->quantize_f32s8 && table->rmsnorm_f32 && table->rope_f32 &&
                table->swiglu_f32 && table->softmax_s32s8 && table->paper_softmax_s32u8);
  }
  EXPECT_STREQ(built_tables().back()->name, "portable");
  EXPECT_EQ(built_tables().back()->required_features, 0u);
}

TEST(Tables, EveryRunnableOneCanBeForced) {
  for (const KernelTable* table : runnable_tables()) {
    use_isa(table->name);
    EXPECT_EQ(&active_table(), table);
  }
  use_isa(runnable_tables().front()->name);
}

TEST(Tables, UnknownAndUnusableNamesThrow) {
  EXPECT_THROW(use_isa("mmx"), UnsupportedIsa);
  EXPECT_THROW(use_isa(""), UnsupportedIsa);
  const std::vector<const KernelTable*> runnable = runnable_tables();
  for (const KernelTable* table : built_tables()) {
    if (std::find(runnable.begin(), runnable.end(), table) != runnable.end()) continue;
    EXPECT_THROW(use_isa(table->name), UnsupportedIsa) << table->name;
  }
}

}  // namespace
}  // namespace intattention::testing
