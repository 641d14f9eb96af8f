// attention() on float arrays: quantises q, k, v, fills a one-layer cache and runs the decoder's attention.
#include <chrono>
#include <cmath>

#include "attention_args.h"
#include "dispatch.h"
#include "pool.h"
#include "register.h"
#include "rotation.h"

namespace intattention::bindings {
namespace {

// n head vectors, rotated, with their scales; throws InvalidArgument if one holds NaN or Inf. `first` is the index of x
// in its array, for the message.
void quantize_heads(const char* name, size_t first, size_t n, size_t d, const float* x, int8_t* q, float* scale) {
  const KernelTable& table = active_table();
  for (size_t i = 0; i < n; ++i) {
    rotate_quantize(table, d, x + i * d, q + i * d, scale + i);
    if (!std::isfinite(scale[i])) throw_not_finite(name, first + i);
  }
}

KVCache filled_cache(ThreadPool& pool, size_t heads, size_t length, size_t d, const float* k, const float* v) {
  KVCache cache(1, heads, d, length);
  cache.reserve(length);
  const size_t blocks = (length + kKeyBlock - 1) / kKeyBlock;
  pool.parallel_for(heads * blocks, [&](size_t item, int) {
    const size_t h = item / blocks, start = item % blocks * kKeyBlock, row = h * length + start;
    const size_t count = std::min(kKeyBlock, length - start);
    AlignedBuffer k8(count * d), v8(count * d);
    float k_scale[kKeyBlock], v_scale[kKeyBlock];
    quantize_heads("k", row, count, d, k + row * d, k8.as<int8_t>(), k_scale);
    quantize_heads("v", row, count, d, v + row * d, v8.as<int8_t>(), v_scale);
    cache.write(0, h, start, count, k8.as<int8_t>(), k_scale, v8.as<int8_t>(), v_scale);
  });
  cache.set_length(length);
  return cache;
}

// q [head][token] quantised into [kv head][token][head of the group], as attention() wants it.
struct GroupedQueries {
  AlignedBuffer q, scale;

  GroupedQueries(ThreadPool& pool, const AttentionShape& shape, const float* x)
      : q(shape.n_heads * shape.q_len * shape.head_dim), scale(shape.n_heads * shape.q_len * sizeof(float)) {
    const size_t group = shape.group(), q_len = shape.q_len, d = shape.head_dim;
    pool.parallel_for(shape.n_heads, [&](size_t h, int) {
      for (size_t t = 0; t < q_len; ++t) {
        const size_t from = h * q_len + t, to = (h / group * q_len + t) * group + h % group;
        quantize_heads("q", from, 1, d, x + from * d, q.as<int8_t>() + to * d, scale.as<float>() + to);
      }
    });
  }
};

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
  const GroupedQueries queries(pool, shape, args.q);
  AttentionWorkspace workspace;
  if (clock != nullptr) clock->attach(workspace);
  attention(pool, {{shape, queries.q.as<int8_t>(), queries.scale.as<float>(), &cache, {out_data, d, q_len * d}}}, 0,
            workspace);
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
