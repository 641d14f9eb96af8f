// Integer attention over the KV cache: INT8 QK, index softmax, INT8 PV, division at the end
// (docs/numerics.md sections 3-5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "aligned_buffer.h"
#include "kv_cache.h"
#include "mask.h"
#include "thread_pool.h"

namespace intattention {

struct AttentionShape {
  size_t n_heads, n_kv_heads, head_dim;
  size_t q_len;
  Mask mask;
  float scale;

  size_t group() const { return n_heads / n_kv_heads; }
};

// What a thread is busy with; see AttentionWorkspace::on_stage.
enum class AttentionStage { kOther, kQK, kSoftmax, kPV };

// Memory that attention() works in: per thread a few tens of KB whatever kv_len is, plus the partial results
// of split-KV. Kept between calls; one call at a time.
class AttentionWorkspace {
 public:
  AttentionWorkspace();
  ~AttentionWorkspace();
  struct Scratch;

  // Room for `threads` tiles of `rows` x head_dim and `part_floats` floats of partial results.
  void prepare(int threads, size_t rows, size_t head_dim, size_t part_floats);
  Scratch& scratch(int worker) { return *scratch_[static_cast<size_t>(worker)]; }
  float* parts() { return parts_.as<float>(); }

  // Called, if set, whenever a thread starts a stage; for benchmarks, which bring their own clock.
  using StageHook = void (*)(void* context, int worker, AttentionStage stage);
  StageHook on_stage = nullptr;
  void* stage_context = nullptr;

 private:
  size_t rows_ = 0, head_dim_ = 0;
  std::vector<std::unique_ptr<Scratch>> scratch_;
  AlignedBuffer parts_;
};

// Where the output of (token, query head) goes: data + token * token_stride + head * head_stride, in floats.
struct AttentionOutput {
  float* data;
  size_t token_stride, head_stride;
};

// The queries of one sequence, and the cache they look at; it holds mask.kv_len rows.
struct AttentionInput {
  AttentionShape shape;
  const int8_t* q;       // s8 [n_kv_heads][q_len][group][head_dim]: the query heads of one kv head lie side by side, so
                         // that they form one tile and K and V are read once for all of them
  const float* q_scale;  // f32 [n_kv_heads][q_len][group]
  const KVCache* cache;
  AttentionOutput out;  // f32, one vector of head_dim per (token, query head)
};

// Attention of `layer` for one or more sequences, which have the same heads and head_dim.
// Results do not depend on the number of threads, nor on what else is among the inputs.
// Throws InvalidArgument if a cache's layout is not the active table's; std::bad_alloc.
void attention(ThreadPool& pool, const std::vector<AttentionInput>& inputs, size_t layer,
               AttentionWorkspace& workspace);

}  // namespace intattention
