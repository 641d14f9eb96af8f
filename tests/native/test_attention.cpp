// Attention gives the same bits on every ISA, for any number of threads, and for prefill and decode.
// The NumPy oracle checks the values (tests/test_attention.py); the digest here ties ARM to x86.
#include "attention.h"

#include "attention_case.h"
#include "error.h"
#include "kernel_test.h"

namespace intattention::testing {
namespace {

class Attention : public KernelTest {
 protected:
  void TearDown() override { use_isa(runnable_tables().front()->name); }

  AttentionCase filled(AttentionCase problem) {
    problem.fill(*this);
    return problem;
  }
};

uint64_t digest(const std::vector<float>& values) {  // FNV-1a over the bits
  uint64_t hash = 14695981039346656037ull;
  for (float value : values) hash = (hash ^ bits_of(value)) * 1099511628211ull;
  return hash;
}

TEST_P(Attention, SameBitsOnEveryIsaAndThreadCount) {
  struct Case {
    AttentionCase problem;
    uint64_t digest;  // of the output; made by the portable table on x86-64
  };
  const Case cases[] = {{{9, 3, 64, 40, 0}, 0x12d739156908a521},
                        {{4, 2, 128, 300, 0}, 0xa442075be906cea6},
                        {{2, 2, 80, 270, 100}, 0x74fe3e957353537f},
                        {{3, 1, 16, 1100, 0}, 0x5637a38e1a477ac3},
                        {{4, 1, 96, 17, 0}, 0x50a2463ddcf6f937}};
  for (const Case& c : cases) {
    const AttentionCase problem = filled(c.problem);
    use_isa(table().name);
    const KVCache cache = problem.filled_cache();
    for (int threads : {1, 2, 3})
      EXPECT_EQ(digest(problem.run(cache, 0, problem.kv_len, threads)), c.digest)
          << "kv_len " << problem.kv_len << " head_dim " << problem.head_dim << " threads " << threads;
  }
}

TEST_P(Attention, ChunksAndDecodeEqualPrefill) {
  const AttentionCase problem = filled({6, 2, 64, 1300, 0});
  use_isa(table().name);
  const KVCache cache = problem.filled_cache();
  const size_t first = problem.kv_len - 70;
  const std::vector<float> whole = problem.run(cache, 0, problem.kv_len, 2);
  const std::vector<float> tail(whole.begin() + static_cast<std::ptrdiff_t>(first * problem.width()), whole.end());
  for (size_t chunk : {size_t{1}, size_t{7}, size_t{64}}) {
    std::vector<float> pieces;
    for (size_t t = first; t < problem.kv_len; t += chunk) {
      const std::vector<float> piece = problem.run(cache, t, std::min(chunk, problem.kv_len - t), 3);
      pieces.insert(pieces.end(), piece.begin(), piece.end());
    }
    EXPECT_EQ(digest(pieces), digest(tail)) << "chunk " << chunk;
  }
}

TEST_P(Attention, RefusesACacheOfAnotherLayout) {
  int others = 0;
  for (const KernelTable* other : runnable_tables()) {
    if (other->attention_inner == table().attention_inner) continue;
    const AttentionCase problem = filled({1, 1, 16, 20, 0});
    use_isa(other->name);
    const KVCache cache = problem.filled_cache();
    use_isa(table().name);
    EXPECT_THROW(problem.run(cache, 0, 20, 1), InvalidArgument);
    ++others;
  }
  if (others == 0) GTEST_SKIP() << "every runnable table has the same layout (run with i8mm)";
}

INTATTENTION_ON_EVERY_TABLE(Attention);

}  // namespace
}  // namespace intattention::testing
