// Rows from anywhere: append_rows takes or refuses them, and what it takes the attention can read.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention.h"
#include "error.h"
#include "fuzz_input.h"
#include "kv_rows.h"

using namespace intattention;
using intattention::fuzzing::Input;

namespace {

constexpr size_t kHeads = 2, kDim = 16, kMaxLength = 600;

void attend(const KVCache& cache) {
  static ThreadPool pool(1, {});
  static AttentionWorkspace workspace;
  const std::vector<int8_t> q(kHeads * kDim, 127);
  const std::vector<float> q_scale(kHeads, 1.0f);
  std::vector<float> out(kHeads * kDim);
  const size_t length = cache.length();
  const AttentionShape shape{kHeads, kHeads, kDim, 1, Mask{length, length - 1, /*causal=*/true}, 0.25f};
  attention(pool, {{shape, q.data(), q_scale.data(), &cache, {out.data(), kHeads * kDim, kDim}}}, 0, workspace);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input{data, size};
  KVCache cache(1, kHeads, kDim, kMaxLength);
  while (input.size > 0) {
    const size_t count = input.byte() + 1u, keep = input.byte();
    std::vector<int8_t> k(kHeads * count * kDim), v(k.size());
    std::vector<float> k_scale(kHeads * count);
    std::vector<int16_t> v_log_scale(kHeads * count);
    input.take(k_scale.data(), k_scale.size() * sizeof(float));
    input.take(v_log_scale.data(), v_log_scale.size() * sizeof(int16_t));
    input.take(k.data(), k.size());
    input.take(v.data(), v.size());
    try {
      append_rows(cache, {{k.data(), k_scale.data(), v.data(), v_log_scale.data()}}, count);
      attend(cache);
      std::vector<int8_t> k_back(k.size()), v_back(v.size());
      if (cache.length() == count) {
        read_rows(cache, 0, count, k_back.data(), k_scale.data(), v_back.data(), v_log_scale.data());
        if (k_back != k || v_back != v) __builtin_trap();
      }
      if (keep < cache.length()) cache.truncate(keep);
    } catch (const InvalidArgument&) {
    } catch (const ContextOverflow&) {
    }
  }
  return 0;
}
