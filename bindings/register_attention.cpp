// attention() on float arrays: what examples and studies call; the works are in src_core/head_tensor.h.
#include <chrono>

#include "attention_args.h"
#include "pool.h"
#include "register.h"

namespace intattention::bindings {
namespace {

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
  KVCache cache(1, shape.n_kv_heads, d, shape.mask.kv_len);
  cache.reserve(shape.mask.kv_len);
  write_heads(pool, cache, 0, 0, HeadTensor::contiguous(args.k, shape.n_kv_heads, shape.mask.kv_len, d),
              HeadTensor::contiguous(args.v, shape.n_kv_heads, shape.mask.kv_len, d));
  cache.set_length(shape.mask.kv_len);
  const GroupedQueries queries(pool, HeadTensor::contiguous(args.q, shape.n_heads, q_len, d), shape.n_kv_heads);
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
