// Runs the native checks and says which ISAs they really exercised. INTATTENTION_EXPECT_ISA (a comma
// list) makes a missing one a failure, so that CI notices an emulator or a build that dropped a tier.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "kernel_test.h"

namespace intattention::testing {

std::vector<std::string>& covered_isas() {
  static std::vector<std::string> names;
  return names;
}

std::string table_name(const ::testing::TestParamInfo<const KernelTable*>& info) { return info.param->name; }

void KernelTest::SetUp() {
  const std::vector<const KernelTable*> runnable = runnable_tables();
  if (std::find(runnable.begin(), runnable.end(), GetParam()) == runnable.end())
    GTEST_SKIP() << GetParam()->name << " cannot run on this CPU";
  std::vector<std::string>& covered = covered_isas();
  if (std::find(covered.begin(), covered.end(), GetParam()->name) == covered.end()) covered.push_back(GetParam()->name);
}

namespace {

TEST(ExpectedIsa, IsRunnable) {
  const char* expected = std::getenv("INTATTENTION_EXPECT_ISA");
  if (expected == nullptr) return;
  std::stringstream names(expected);
  for (std::string name; std::getline(names, name, ',');) {
    bool found = false;
    for (const KernelTable* table : runnable_tables()) found = found || name == table->name;
    EXPECT_TRUE(found) << "INTATTENTION_EXPECT_ISA names '" << name << "', which this CPU or build lacks";
  }
}

}  // namespace
}  // namespace intattention::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  std::printf("covered ISAs:");
  for (const std::string& name : intattention::testing::covered_isas()) std::printf(" %s", name.c_str());
  std::printf("\n");
  return status;
}
