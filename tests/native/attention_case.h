// Attention of random integers with exact scales, the same on every machine.
#pragma once

#include <vector>

#include "attention.h"
#include "kernel_test.h"

namespace intattention::testing {

struct AttentionCase {
  size_t n_heads = 0, n_kv_heads = 0, head_dim = 0, kv_len = 0, window = 0;
  std::vector<int8_t> q = {}, k = {}, v = {};
  std::vector<float> q_scale = {}, k_scale = {}, v_scale = {};

  size_t width() const { return n_heads * head_dim; }

  void fill(Random& random) {
    q = random.random_ints<int8_t>(n_heads * kv_len * head_dim, -127, 127);
    k = random.random_ints<int8_t>(n_kv_heads * kv_len * head_dim, -127, 127);
    v = random.random_ints<int8_t>(n_kv_heads * kv_len * head_dim, -127, 127);
    q_scale = scales(random, n_heads * kv_len);
    k_scale = scales(random, n_kv_heads * kv_len);
    v_scale = scales(random, n_kv_heads * kv_len);
    for (size_t i = 0; i < v_scale.size(); i += 7) v_scale[i] *= 0x1p-7f;  // far below the others of their block
  }

  KVCache filled_cache() const {
    KVCache cache(1, n_kv_heads, head_dim, kv_len);
    cache.reserve(kv_len);
    for (size_t h = 0; h < n_kv_heads; ++h)
      for (size_t j = 0; j < kv_len; ++j) {
        const size_t row = h * kv_len + j;
        cache.write(0, h, j, 1, &k[row * head_dim], &k_scale[row], &v[row * head_dim], &v_scale[row]);
      }
    cache.set_length(kv_len);
    return cache;
  }

  struct Queries {
    std::vector<int8_t> q;
    std::vector<float> scale;
  };
  // Those of tokens first .. first+count-1, [kv head][token][group].
  Queries queries(size_t first, size_t count) const {
    Queries some;
    const size_t group = n_heads / n_kv_heads;
    for (size_t h = 0; h < n_kv_heads; ++h)
      for (size_t row = (h * kv_len + first) * group; row < (h * kv_len + first + count) * group; ++row) {
        some.q.insert(some.q.end(), &q[row * head_dim], &q[row * head_dim] + head_dim);
        some.scale.push_back(q_scale[row]);
      }
    return some;
  }

  // These queries with the keys up to the last of them.
  std::vector<float> run(const KVCache& cache, size_t first, size_t count, int threads) const {
    const Queries some = queries(first, count);
    const AttentionShape shape{n_heads, n_kv_heads, head_dim, count, Mask{first + count, first, true, window}, kScale};
    std::vector<float> out(count * width());
    ThreadPool pool(threads, {});
    AttentionWorkspace workspace;
    const AttentionOutput output{out.data(), width(), head_dim};
    attention(pool, {{shape, some.q.data(), some.scale.data(), &cache, output}}, 0, workspace);
    return out;
  }

  static constexpr float kScale = 0.125f;  // of the logits

 private:
  static std::vector<float> scales(Random& random, size_t count) {
    std::vector<float> s(count);
    for (float& x : s) x = static_cast<float>(random.random_int(100, 1600)) * 0x1p-15f;
    return s;
  }
};

}  // namespace intattention::testing
