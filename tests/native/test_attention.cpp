// Attention gives the same bits on every ISA, for any number of threads, and for prefill and decode.
// The NumPy oracle checks the values (tests/test_attention.py); the digest here ties ARM to x86.
#include "attention.h"

#include "error.h"
#include "kernel_test.h"

namespace intattention::testing {
namespace {

struct Problem {
  size_t n_heads, n_kv_heads, head_dim, kv_len, window;
};

class Attention : public KernelTest {
 protected:
  void TearDown() override { use_isa(runnable_tables().front()->name); }

  // Integers and exact scales, so that the inputs are the same on every machine.
  void fill(const Problem& p) {
    problem_ = p;
    q_ = random_ints<int8_t>(p.n_heads * p.kv_len * p.head_dim, -127, 127);
    k_ = random_ints<int8_t>(p.n_kv_heads * p.kv_len * p.head_dim, -127, 127);
    v_ = random_ints<int8_t>(p.n_kv_heads * p.kv_len * p.head_dim, -127, 127);
    q_scale_ = scales(p.n_heads * p.kv_len);
    k_scale_ = scales(p.n_kv_heads * p.kv_len);
    v_scale_ = scales(p.n_kv_heads * p.kv_len);
    for (size_t i = 0; i < v_scale_.size(); i += 7) v_scale_[i] *= 0x1p-7f;  // far below the others of their block
  }
  std::vector<float> scales(size_t count) {
    std::vector<float> s(count);
    for (float& x : s) x = static_cast<float>(random_int(100, 1600)) * 0x1p-15f;
    return s;
  }

  KVCache filled_cache() const {
    const Problem& p = problem_;
    KVCache cache(1, p.n_kv_heads, p.head_dim, p.kv_len);
    cache.reserve(p.kv_len);
    for (size_t h = 0; h < p.n_kv_heads; ++h)
      for (size_t j = 0; j < p.kv_len; ++j) {
        const size_t row = h * p.kv_len + j;
        cache.write(0, h, j, 1, &k_[row * p.head_dim], &k_scale_[row], &v_[row * p.head_dim], &v_scale_[row]);
      }
    cache.set_length(p.kv_len);
    return cache;
  }

  // Queries first .. first+count-1 with the keys up to the last of them.
  std::vector<float> run(const KVCache& cache, size_t first, size_t count, int threads) const {
    const Problem& p = problem_;
    const size_t group = p.n_heads / p.n_kv_heads;
    std::vector<int8_t> q;
    std::vector<float> q_scale;
    for (size_t h = 0; h < p.n_kv_heads; ++h)
      for (size_t row = (h * p.kv_len + first) * group; row < (h * p.kv_len + first + count) * group; ++row) {
        q.insert(q.end(), &q_[row * p.head_dim], &q_[row * p.head_dim] + p.head_dim);
        q_scale.push_back(q_scale_[row]);
      }
    const AttentionShape shape{p.n_heads, p.n_kv_heads, p.head_dim, count, Mask{first + count, first, true, p.window},
                               0.125f};
    std::vector<float> out(count * p.n_heads * p.head_dim);
    ThreadPool pool(threads, {});
    AttentionWorkspace workspace;
    const AttentionOutput output{out.data(), p.n_heads * p.head_dim, p.head_dim};
    attention(pool, {{shape, q.data(), q_scale.data(), &cache, output}}, 0, workspace);
    return out;
  }

  Problem problem_;
  std::vector<int8_t> q_, k_, v_;
  std::vector<float> q_scale_, k_scale_, v_scale_;
};

uint64_t digest(const std::vector<float>& values) {  // FNV-1a over the bits
  uint64_t hash = 14695981039346656037ull;
  for (float value : values) hash = (hash ^ bits_of(value)) * 1099511628211ull;
  return hash;
}

TEST_P(Attention, SameBitsOnEveryIsaAndThreadCount) {
  struct Case {
    Problem problem;
    uint64_t digest;  // of the output; made by the portable table on x86-64
  };
  const Case cases[] = {{{9, 3, 64, 40, 0}, 0x12d739156908a521},
                        {{4, 2, 128, 300, 0}, 0xa442075be906cea6},
                        {{2, 2, 80, 270, 100}, 0x74fe3e957353537f},
                        {{3, 1, 16, 1100, 0}, 0x5637a38e1a477ac3},
                        {{4, 1, 96, 17, 0}, 0x50a2463ddcf6f937}};
  for (const Case& c : cases) {
    fill(c.problem);
    use_isa(table().name);
    const KVCache cache = filled_cache();
    for (int threads : {1, 2, 3})
      EXPECT_EQ(digest(run(cache, 0, c.problem.kv_len, threads)), c.digest)
          << "kv_len " << c.problem.kv_len << " head_dim " << c.problem.head_dim << " threads " << threads;
  }
}

TEST_P(Attention, ChunksAndDecodeEqualPrefill) {
  fill({6, 2, 64, 1300, 0});
  use_isa(table().name);
  const KVCache cache = filled_cache();
  const size_t width = problem_.n_heads * problem_.head_dim, first = problem_.kv_len - 70;
  const std::vector<float> whole = run(cache, 0, problem_.kv_len, 2);
  const std::vector<float> tail(whole.begin() + static_cast<std::ptrdiff_t>(first * width), whole.end());
  for (size_t chunk : {size_t{1}, size_t{7}, size_t{64}}) {
    std::vector<float> pieces;
    for (size_t t = first; t < problem_.kv_len; t += chunk) {
      const std::vector<float> piece = run(cache, t, std::min(chunk, problem_.kv_len - t), 3);
      pieces.insert(pieces.end(), piece.begin(), piece.end());
    }
    EXPECT_EQ(digest(pieces), digest(tail)) << "chunk " << chunk;
  }
}

TEST_P(Attention, RefusesACacheOfAnotherLayout) {
  int others = 0;
  for (const KernelTable* other : runnable_tables()) {
    if (other->attention_inner == table().attention_inner) continue;
    fill({1, 1, 16, 20, 0});
    use_isa(other->name);
    const KVCache cache = filled_cache();
    use_isa(table().name);
    EXPECT_THROW(run(cache, 0, 20, 1), InvalidArgument);
    ++others;
  }
  if (others == 0) GTEST_SKIP() << "every runnable table has the same layout (run with i8mm)";
}

INTATTENTION_ON_EVERY_TABLE(Attention);

}  // namespace
}  // namespace intattention::testing
