// How a GEMV's blocks divide a matrix; needs no GPU.
#include <gtest/gtest.h>

#include <vector>

#include "gemv_share.cuh"

namespace intattention::cuda {
namespace {

// Every chunk once, in the order of the pieces; every unit ends in one block.
void check_line(uint32_t units, uint32_t chunks, uint32_t tiles, uint32_t blocks) {
  SCOPED_TRACE(::testing::Message() << units << " units of " << tiles << " x " << chunks << ", " << blocks
                                    << " blocks");
  const Line line(units, chunks, tiles, blocks);
  std::vector<int> seen(units * chunks * tiles), ended(units);
  uint32_t least = UINT32_MAX, most = 0;
  for (uint32_t b = 0; b < blocks; ++b) {
    const Share share(line, b);
    least = std::min(least, share.count()), most = std::max(most, share.count());
    std::vector<uint32_t> order;
    for (uint32_t piece = 0; piece < share.pieces(); ++piece)
      for (uint32_t i = 0; i < share.count(piece); ++i) order.push_back(share.first(piece) + i);
    ASSERT_EQ(order.size(), share.count());
    for (uint32_t i = 0; i < share.count(); ++i) {
      ASSERT_EQ(share.chunk(i), order[i]) << "block " << b << " chunk " << i;
      ++seen[order[i]];
    }
    std::vector<uint32_t> ends;
    for (uint32_t c : order)
      if (c % line.unit.d == line.unit.d - 1) ends.push_back(c / line.unit.d);
    ASSERT_EQ(share.ending(), ends.size());
    for (uint32_t i = 0; i < ends.size(); ++i) {
      EXPECT_EQ(share.ending_unit(i), ends[i]) << "block " << b;
      ++ended[ends[i]];
    }
    if (share.count(share.pieces() - 1) > 0) {  // the tail goes on where the head of the block before stops
      ASSERT_GT(b, 0u);
      const Share before(line, b - 1);
      EXPECT_EQ(before.first(0) + before.count(0), share.first(share.pieces() - 1));
      EXPECT_GT(before.count(0), 0u);
    }
  }
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
  EXPECT_EQ(ended, std::vector<int>(ended.size(), 1));
  EXPECT_LE(most - least, 1u);
}

TEST(GemvShare, EveryChunkOnceAndInOrder) {
  for (uint32_t blocks : {1, 2, 7, 16, 132})
    for (uint32_t units : {1, 2, 7, 15, 16, 17, 31, 32, 33, 132, 133, 263, 264, 265, 592, 1000})
      for (uint32_t chunks : {1, 2, 5, 28})
        for (uint32_t tiles : {1, 2}) {
          if (blocks > units) continue;
          check_line(units, chunks, tiles, blocks);
          if (HasFailure()) return;
        }
}

}  // namespace
}  // namespace intattention::cuda
