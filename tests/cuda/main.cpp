// Runs the checks where a GPU answers; elsewhere every one is skipped, with the reason.
#include "cuda_test.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
