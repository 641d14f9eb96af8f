// attention() on float arrays: quantises q, k, v, fills a one-layer cache and runs the decoder's attention.
#include <chrono>
#include <cmath>

#include "attention_args.h"
#include "dispatch.h"
#include "pool.h"
#include "register.h"

namespace intattention::bindings {
namespace {

// Head vectors x [n][d] quantised row by row on the pool; throws InvalidArgument if one holds NaN or Inf.
struct QuantizedHeads {
  AlignedBuffer q, scale;

  QuantizedHeads(ThreadPool& pool, const char* name, size_t n, size_t d, const float* x)
      : q(n * d), scale(n * sizeof(float)) {
    constexpr size_t kRowsPerItem = 256;
    pool.parallel_for((n + kRowsPerItem - 1) / kRowsPerItem, [&](size_t item, int) {
      const size_t first = item * kRowsPerItem, count = std::min(kRowsPerItem, n - first);
      active_table().quantize_f32s8(count, d, x + first * d, row(first, d), scale.as<float>() + first, nullptr);
      for (size_t i = first; i < first + count; ++i)
        if (!std::isfinite(scale.as<float>()[i])) throw_not_finite(name, i);
    });
  }
  int8_t* row(size_t i, size_t d) { return q.as<int8_t>() + i * d; }
};

KVCache filled_cache(ThreadPool& pool, size_t heads, size_t length, size_t d, const float* k, const float* v) {
  KVCache cache(1, heads, d, length);
  cache.reserve(length);
  QuantizedHeads k8(pool, "k", heads * length, d, k), v8(pool, "v", heads * length, d, v);
  const size_t blocks = (length + kKeyBlock - 1) / kKeyBlock;
  pool.parallel_for(heads * blocks, [&](size_t item, int) {
    const size_t h = item / blocks, first = item % blocks * kKeyBlock, row = h * length + first;
    cache.write(0, h, first, std::min(kKeyBlock, length - first), k8.row(row, d), k8.scale.as<float>() + row,
                v8.row(row, d), v8.scale.as<float>() + row);
  });
  cache.set_length(length);
  return cache;
}

// Seconds that the threads spent in each stage, summed over threads.
class StageClock {
 public:
  explicit StageClock(int threads) : workers_(static_cast<size_t>(threads)) {}

  void attach(AttentionWorkspace& workspace) {
    workspace.stage_context = this;
    workspace.on_stage = [](void* context, int worker, AttentionStage stage) {
      static_cast<StageClock*>(context)->workers_[static_cast<size_t>(worker)].enter(stage);
    };
  }

  double seconds(AttentionStage stage) const {
    double sum = 0;
    for (const Worker& worker : workers_) sum += worker.seconds[static_cast<size_t>(stage)];
    return sum;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct alignas(64) Worker {  // a cache line each
    AttentionStage stage = AttentionStage::kOther;
    Clock::time_point since = Clock::now();
    double seconds[4] = {};

    void enter(AttentionStage next) {
      const Clock::time_point now = Clock::now();
      seconds[static_cast<size_t>(stage)] += std::chrono::duration<double>(now - since).count();
      stage = next;
      since = now;
    }
  };
  std::vector<Worker> workers_;
};

py::array_t<float> run(const py::array& q, const py::array& k, const py::array& v, bool causal, float scale,
                       size_t window, ThreadPool* user_pool, size_t prefix, StageClock* clock = nullptr) {
  const AttentionArgs<float> args(q, k, v, {causal, scale, window, prefix});
  const AttentionShape& shape = args.shape;
  const size_t d = shape.head_dim, q_len = shape.q_len;
  py::array_t<float> out = new_array<float>({shape.n_heads, q_len, d});
  float* out_data = out.mutable_data();
  py::gil_scoped_release release;
  ThreadPool& pool = pool_or_default(user_pool);
  const ThreadPool::CallerPin pin(pool);
  const KVCache cache = filled_cache(pool, shape.n_kv_heads, shape.mask.kv_len, d, args.k, args.v);
  QuantizedHeads q8(pool, "q", shape.n_heads * q_len, d, args.q);
  // [head][token] -> [kv head][token][head of the group], as attention() wants it, and back
  AlignedBuffer grouped(shape.n_heads * q_len * d), grouped_scale(shape.n_heads * q_len * sizeof(float));
  AlignedBuffer by_token(shape.n_heads * q_len * d * sizeof(float));
  const size_t group = shape.group();
  pool.parallel_for(shape.n_heads, [&](size_t h, int) {
    for (size_t t = 0; t < q_len; ++t) {
      const size_t from = h * q_len + t, to = (h / group * q_len + t) * group + h % group;
      std::copy_n(q8.row(from, d), d, grouped.as<int8_t>() + to * d);
      grouped_scale.as<float>()[to] = q8.scale.as<float>()[from];
    }
  });
  AttentionWorkspace workspace;
  if (clock != nullptr) clock->attach(workspace);
  attention(pool, shape, grouped.as<int8_t>(), grouped_scale.as<float>(), cache, 0, by_token.as<float>(), workspace);
  pool.parallel_for(shape.n_heads, [&](size_t h, int) {
    for (size_t t = 0; t < q_len; ++t)
      std::copy_n(by_token.as<float>() + (t * shape.n_heads + h) * d, d, out_data + (h * q_len + t) * d);
  });
  return out;
}

py::dict stages(const py::array& q, const py::array& k, const py::array& v, bool causal, float scale,
                ThreadPool* user_pool) {
  StageClock clock(pool_or_default(user_pool).threads());
  const auto start = std::chrono::steady_clock::now();
  run(q, k, v, causal, scale, 0, user_pool, 0, &clock);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const double total = elapsed.count() * pool_or_default(user_pool).threads();
  py::dict out;
  out["qk"] = clock.seconds(AttentionStage::kQK);
  out["softmax"] = clock.seconds(AttentionStage::kSoftmax);
  out["pv"] = clock.seconds(AttentionStage::kPV);
  out["total"] = total;
  return out;
}

}  // namespace

void register_attention(py::module_& m) {
  m.def("attention_stages", &stages, py::arg("q").noconvert(), py::arg("k").noconvert(), py::arg("v").noconvert(),
        py::arg("causal"), py::arg("scale"), py::arg("pool") = py::none());
  m.def(
      "attention",
      [](const py::array& q, const py::array& k, const py::array& v, bool causal, float scale, size_t window,
         ThreadPool* pool, size_t prefix) { return run(q, k, v, causal, scale, window, pool, prefix); },
      py::arg("q").noconvert(), py::arg("k").noconvert(), py::arg("v").noconvert(), py::arg("causal"), py::arg("scale"),
      py::arg("window"), py::arg("pool") = py::none(), py::arg("prefix") = 0);
}

}  // namespace intattention::bindings
