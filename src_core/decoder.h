// A Llama-style decoder: int4/int8 weights, int8 activations, int8 KV cache, integer attention.
// Names are Hugging Face's. What Llama, Qwen and Mistral do differently is an option, empty where a model has none.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "decoder_pass.h"
#include "fork_hook.h"
#include "kv_cache.h"
#include "linear.h"
#include "rope.h"
#include "rotation.h"

namespace intattention {

struct DecoderConfig {
  size_t vocab_size, hidden_size, intermediate_size, num_hidden_layers;
  size_t num_attention_heads, num_key_value_heads, head_dim;
  size_t max_position_embeddings;
  float rms_norm_eps;
  double rope_theta;
  Rope rope = {};  // no frequencies: the plain ones of rope_theta over the whole head
};

struct DecoderLayer {
  std::vector<float> input_layernorm;  // [hidden]
  LinearW4A8 qkv_proj;                 // parts q, k, v; rows of q, k in Hugging Face order
  LinearW4A8 o_proj;
  std::vector<float> post_attention_layernorm;
  LinearW4A8 gate_up_proj;  // parts gate, up
  LinearW4A8 down_proj;
  std::vector<float> qkv_bias = {};             // [(heads + 2 kv_heads) * head_dim]
  std::vector<float> o_bias = {};               // [hidden]
  std::vector<float> gate_up_bias = {};         // [2 * intermediate]
  std::vector<float> down_bias = {};            // [hidden]
  std::vector<float> q_norm = {}, k_norm = {};  // [head_dim]: RMSNorm of every head before RoPE
  size_t sliding_window = 0;                    // a token sees at most so many keys, itself included; 0: all
  // What leaves the weights of attention as they are and makes q and k easier to round, [kv_heads * head_dim] each:
  // q is multiplied and k divided by qk_scale (powers of two, equal in a rotary pair); after RoPE k_center comes off k.
  std::vector<float> qk_scale = {}, k_center = {};
};

class Decoder {
 public:
  using Weights = std::shared_ptr<const PackedWeights>;

  // lm_head may be null: tied to embed_tokens. Throws InvalidArgument with the numbers that do not fit.
  Decoder(const DecoderConfig& config, Weights embed_tokens, std::vector<std::shared_ptr<const DecoderLayer>> layers,
          std::vector<float> norm, Weights lm_head, std::shared_ptr<ThreadPool> pool);

  const DecoderConfig& config() const { return config_; }
  size_t nbytes() const;  // of the packed weights
  const Weights& embed_tokens() const { return embed_tokens_; }
  const std::vector<std::shared_ptr<const DecoderLayer>>& layers() const { return layers_; }
  const std::vector<float>& norm() const { return norm_; }
  const LinearW4A8& lm_head() const { return lm_head_; }

  // Runs `count` token ids at positions cache.length() ... and appends them to the cache. `logits` gets
  // [rows][vocab_size] with rows 0, 1 or count. The bits of the result do not depend on how a prompt is
  // cut into calls. Throws InvalidArgument, ContextOverflow, NumericError or std::bad_alloc; the cache is
  // then as it was.
  void forward(const int32_t* ids, size_t count, KVCache& cache, LogitRows rows, float* logits);

  // The same for many sequences at once, each with a cache of its own: the weights are read once for all of them.
  // `logits` gets the rows of each input, one input after the other. The bits are those of one input at a time.
  // On an exception all caches are as they were.
  void forward(const std::vector<DecoderInput>& inputs, float* logits);

  // Runs the ids through layers 0 .. layer-1 and gives what attention of `layer` sees, for studies and benchmarks:
  // f32 [count][(heads + 2 * kv_heads) * head_dim], q and k after RoPE, scale and centre, v. `cache` ends as it was.
  void capture_qkv(const int32_t* ids, size_t count, KVCache& cache, size_t layer, float* qkv);

 private:
  struct Workspace;

  void check_weights() const;
  void check_call(const std::vector<DecoderInput>& inputs) const;
  std::vector<Pass> prepare(const std::vector<DecoderInput>& inputs);
  void forward_pass(const Pass& pass, float* logits);
  const float* run_layer(size_t index, const Pass& pass, const float* residual);
  void project_qkv(size_t index, const Pass& pass, const float* residual);
  void check_finite(const Pass& pass) const;
  void embed(const Pass& pass);
  void norm_quantize(size_t count, const float* add, const std::vector<float>& weight, const size_t* rows = nullptr);
  void bias_norm_qkv(const DecoderLayer& layer, size_t count);
  void add_bias(size_t count, const std::vector<float>& bias, float* y);
  void rope_quantize_append(size_t layer, const Pass& pass);
  void rope_quantize_q(const Segment& segment, size_t token);
  void rope_quantize_append_kv(size_t layer, size_t head, const Segment& segment, const AppendSpan& span);
  float checked_scale(float scale) const;
  size_t qkv_heads() const { return config_.num_attention_heads + 2 * config_.num_key_value_heads; }
  void attend(size_t layer, const Pass& pass);
  void quantize_rows(size_t count, const float* x, Activations& y);
  void swiglu_quantize(size_t count);
  void apply_rope(size_t row, float* head) const;
  void output_logits(size_t count, float* logits);

  DecoderConfig config_;
  Weights embed_tokens_;
  std::vector<std::shared_ptr<const DecoderLayer>> layers_;
  std::vector<float> norm_;
  LinearW4A8 lm_head_;
  std::shared_ptr<ThreadPool> pool_;
  std::mutex mutex_;  // one forward at a time: the workspace is shared
  std::shared_ptr<Workspace> work_;
  ForkHook fork_hook_{[this] {  // another thread may have been in forward()
    abandon(mutex_);
    abandon(work_);
  }};
};

}  // namespace intattention
