// AlignedBuffer from small to many pages: zero, aligned, all of it writable, given back at the end.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <string>

#include "aligned_buffer.h"

namespace intattention {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class AlignedBufferOf : public testing::TestWithParam<size_t> {};

TEST_P(AlignedBufferOf, IsZeroAlignedAndWritable) {
  for (int round = 0; round < 3; ++round) {  // memory that was written before comes back zero too
    AlignedBuffer buffer(GetParam());
    ASSERT_EQ(buffer.size(), GetParam());
    ASSERT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % AlignedBuffer::kAlignment, 0u);
    if (GetParam() >= kHugePage) {
      ASSERT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kHugePage, 0u);
    }
    for (size_t i = 0; i < buffer.size(); ++i) ASSERT_EQ(buffer.data()[i], 0u) << i;
    std::memset(buffer.data(), 0xff, buffer.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, AlignedBufferOf,
                         testing::Values(1, 64, kMiB - 1, kMiB, kMiB + 1, 2 * kMiB - 1, 2 * kMiB, 2 * kMiB + 1,
                                         3 * kMiB, 4 * kMiB - 4095, 5 * kMiB + 4096));

TEST(AlignedBuffer, NeighboursDoNotShareBytes) {
  AlignedBuffer first(3 * kMiB), second(3 * kMiB + 1), third(kMiB);
  std::memset(first.data(), 1, first.size());
  std::memset(second.data(), 2, second.size());
  std::memset(third.data(), 3, third.size());
  for (size_t i = 0; i < first.size(); ++i) ASSERT_EQ(first.data()[i], 1);
  for (size_t i = 0; i < second.size(); ++i) ASSERT_EQ(second.data()[i], 2);
}

TEST(AlignedBuffer, MoreThanThereIsThrows) {
  for (const size_t bytes :
       {std::numeric_limits<size_t>::max(), std::numeric_limits<size_t>::max() / 2, size_t{1} << 60})
    EXPECT_THROW(AlignedBuffer{bytes}, std::bad_alloc) << bytes;
  EXPECT_EQ(AlignedBuffer(kMiB).data()[kMiB - 1], 0);
}

#ifdef __linux__
size_t mapped_pages() {
  size_t total = 0;
  std::ifstream("/proc/self/statm") >> total;
  return total;
}

// 64 GiB in all: what is mapped, not what is touched, so that nothing but the release can make room.
TEST(AlignedBuffer, MemoryGoesBack) {
  {
    AlignedBuffer once(16 * kMiB);
  }
  const size_t before = mapped_pages();
  for (int i = 0; i < 4096; ++i) AlignedBuffer buffer(16 * kMiB + static_cast<size_t>(i));
  EXPECT_LE(mapped_pages(), before + 1024);  // 4 MiB in pages of 4 KB
}
#endif

}  // namespace
}  // namespace intattention
