// The comparison pipelines give the same bits on every ISA and for any number of threads. The NumPy oracles check the
// values (tests/test_attention_paper.py, test_attention_quant_only.py); the digests here tie ARM to x86.
#include "attention_paper.h"
#include "attention_quant_only.h"
#include "kernel_test.h"

namespace intattention::testing {
namespace {

struct StudyCase {
  size_t n_heads, n_kv_heads, head_dim, q_len, kv_len;
  bool causal;
  size_t window, prefix;
  uint64_t paper, quant_only;  // digests of the output; made by the portable table on x86-64
};

constexpr StudyCase kCases[] = {
    {9, 3, 64, 40, 40, true, 0, 0, 0xf63a7caf14798475, 0xa25d8aa9dac5db83},
    {4, 2, 128, 300, 300, true, 0, 0, 0xfa1fbb12a2717f9f, 0xcee69f6655939239},
    {2, 2, 80, 270, 270, true, 100, 0, 0xdb52eff913dc5fa1, 0xbbf8cdcb5319e055},
    {3, 1, 16, 1100, 1100, true, 0, 0, 0xd5dc6a8316195b4a, 0x6d3fe5f916ad2cb4},
    {4, 1, 96, 17, 3000, false, 0, 0, 0xbf0e5cf200ad334b, 0x6eee91939571fd05},
    {8, 2, 64, 1, 2500, true, 0, 0, 0xed276175ab4eac61, 0xa5642b0b8e800e78},
    {2, 1, 256, 130, 290, true, 0, 200, 0x204aece609b39ddc, 0xd6e71bbf0b30a63f},
};

uint64_t digest(const std::vector<float>& values) {  // FNV-1a over the bits
  uint64_t hash = 14695981039346656037ull;
  for (float value : values) hash = (hash ^ bits_of(value)) * 1099511628211ull;
  return hash;
}

class AttentionStudy : public KernelTest {
 protected:
  void TearDown() override { use_isa(runnable_tables().front()->name); }
};

TEST_P(AttentionStudy, SameBitsOnEveryIsaAndThreadCount) {
  use_isa(table().name);
  for (const StudyCase& c : kCases) {
    const std::vector<int8_t> q = random_ints<int8_t>(c.n_heads * c.q_len * c.head_dim, -127, 127);
    const std::vector<int8_t> k = random_ints<int8_t>(c.n_kv_heads * c.kv_len * c.head_dim, -127, 127);
    const std::vector<int8_t> v = random_ints<int8_t>(c.n_kv_heads * c.kv_len * c.head_dim, -127, 127);
    const Int8Heads q8{q.data(), 0x1p-6f}, k8{k.data(), 0x1.8p-6f}, v8{v.data(), 0x1p-7f};
    const size_t position = c.causal ? c.kv_len - c.q_len : 0;
    const AttentionShape shape{
        c.n_heads, c.n_kv_heads, c.head_dim, c.q_len, Mask{c.kv_len, position, c.causal, c.window, c.prefix}, 0.125f};
    for (int threads : {1, 2, 3}) {
      SCOPED_TRACE(::testing::Message() << "kv_len " << c.kv_len << " head_dim " << c.head_dim << " threads "
                                        << threads);
      ThreadPool pool(threads, {});
      std::vector<float> out(c.n_heads * c.q_len * c.head_dim);
      attention_paper(pool, shape, q8, k8, v8, PaperRounding::kNearest, out.data(), nullptr);
      EXPECT_EQ(digest(out), c.paper);
      attention_quant_only(pool, shape, q8, k8, v8, out.data());
      EXPECT_EQ(digest(out), c.quant_only);
    }
  }
}

INTATTENTION_ON_EVERY_TABLE(AttentionStudy);

}  // namespace
}  // namespace intattention::testing
