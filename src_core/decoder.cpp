#include "decoder.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "attention.h"
#include "dispatch.h"
#include "error.h"

namespace intattention {

// Tokens per pass over the weights. The weights of a layer are read once per batch; 256 rows make that read
// negligible, and bound the workspace (65 MB for the shapes of a 7B model).
constexpr size_t kMaxBatch = 256;

// Tokens (at aligned positions) that one work item ropes, quantises and appends: threads never share a cache line of
// the KV cache, and V rows go in by groups of keys.
constexpr size_t kAppendTokens = 16;

struct Decoder::Workspace {
  size_t capacity;          // tokens
  AlignedBuffer hidden;     // f32 [T][hidden], the residual stream
  AlignedBuffer normed;     // f32 [T][hidden], one row per token in flight
  AlignedBuffer qkv;        // f32 [T][(heads + 2 kv_heads) * head_dim]
  AlignedBuffer q;          // s8 [kv_heads][T][group][head_dim]
  AlignedBuffer q_scale;    // f32 [kv_heads][T][group]
  AlignedBuffer attn;       // f32 [T][heads * head_dim]
  AlignedBuffer projected;  // f32 [T][hidden], output of o_proj and down_proj
  AlignedBuffer gate_up;    // f32 [T][2 * intermediate]
  AlignedBuffer act;        // f32 [T][intermediate]
  AlignedBuffer cos, sin;   // f32 [T][rope.dim() / 2]
  Activations normed_q, attn_q, act_q;
  AttentionWorkspace attention;
  std::atomic<bool> finite{true};  // no NaN or Inf seen in q, k, v of this batch

  Workspace(const DecoderConfig& c, size_t tokens)
      : capacity(tokens),
        hidden(tokens * c.hidden_size * sizeof(float)),
        normed(tokens * c.hidden_size * sizeof(float)),
        qkv(tokens * (c.num_attention_heads + 2 * c.num_key_value_heads) * c.head_dim * sizeof(float)),
        q(tokens * c.num_attention_heads * c.head_dim),
        q_scale(tokens * c.num_attention_heads * sizeof(float)),
        attn(tokens * c.num_attention_heads * c.head_dim * sizeof(float)),
        projected(tokens * c.hidden_size * sizeof(float)),
        gate_up(tokens * 2 * c.intermediate_size * sizeof(float)),
        act(tokens * c.intermediate_size * sizeof(float)),
        cos(tokens * c.rope.dim() / 2 * sizeof(float)),
        sin(tokens * c.rope.dim() / 2 * sizeof(float)),
        normed_q(tokens, c.hidden_size),
        attn_q(tokens, c.num_attention_heads * c.head_dim),
        act_q(tokens, c.intermediate_size) {}
};

Decoder::Decoder(const DecoderConfig& config, Weights embed_tokens,
                 std::vector<std::shared_ptr<const DecoderLayer>> layers, std::vector<float> norm, Weights lm_head,
                 std::shared_ptr<ThreadPool> pool)
    : config_(config),
      embed_tokens_(std::move(embed_tokens)),
      layers_(std::move(layers)),
      norm_(std::move(norm)),
      lm_head_({lm_head ? std::move(lm_head) : embed_tokens_}),
      pool_(std::move(pool)) {
  check_weights();
  if (config_.rope.inverse_frequency.empty())
    config_.rope.inverse_frequency = plain_frequencies(config_.rope_theta, config_.head_dim);
}

void Decoder::forward(const int32_t* ids, size_t count, KVCache& cache, LogitRows rows, float* logits) {
  std::lock_guard<std::mutex> lock(mutex_);
  prepare(ids, count, cache);
  const size_t start = cache.length();
  const ThreadPool::CallerPin pin(*pool_);
  for (size_t done = 0; done < count;) {
    const size_t batch = std::min(kMaxBatch, count - done);
    const bool last = done + batch == count;
    const LogitRows wanted = rows == LogitRows::kLast && !last ? LogitRows::kNone : rows;
    forward_batch(ids + done, batch, start + done, cache, wanted, logits);
    if (rows == LogitRows::kAll) logits += batch * config_.vocab_size;
    done += batch;
  }
  cache.set_length(start + count);
}

void Decoder::capture_qkv(const int32_t* ids, size_t count, KVCache& cache, size_t layer, float* qkv) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (layer >= layers_.size())
    throw InvalidArgument(message("capture: layer ", layer, " of a model with ", layers_.size()));
  prepare(ids, count, cache);
  const size_t width = layers_[layer]->qkv_proj.out_features();
  const ThreadPool::CallerPin pin(*pool_);
  for (size_t done = 0; done < count;) {
    const size_t batch = std::min(kMaxBatch, count - done), position = cache.length() + done;
    config_.rope.angles(position, batch, work_->cos.as<float>(), work_->sin.as<float>());
    embed(ids + done, batch);
    const float* residual = nullptr;
    for (size_t i = 0; i < layer; ++i) residual = run_layer(i, batch, position, cache, residual);
    project_qkv(layer, batch, position, cache, residual);
    check_finite(batch, position);
    std::copy_n(work_->qkv.as<float>(), batch * width, qkv + done * width);
    done += batch;
  }
}

// Checks the call, takes the memory and resets the flag of non-finite values.
void Decoder::prepare(const int32_t* ids, size_t count, KVCache& cache) {
  check_call(ids, count, cache);
  cache.reserve(cache.length() + count);
  if (!work_ || work_->capacity < std::min(count, kMaxBatch))
    work_ = std::make_shared<Workspace>(config_, std::min(count, kMaxBatch));
  work_->finite.store(true);
}

void Decoder::forward_batch(const int32_t* ids, size_t count, size_t position, KVCache& cache, LogitRows rows,
                            float* logits) {
  config_.rope.angles(position, count, work_->cos.as<float>(), work_->sin.as<float>());
  embed(ids, count);
  const float* residual = nullptr;
  for (size_t i = 0; i < layers_.size(); ++i) residual = run_layer(i, count, position, cache, residual);
  check_finite(count, position);
  if (rows == LogitRows::kNone) return;
  norm_quantize(count, residual, norm_);
  const size_t first = rows == LogitRows::kLast ? count - 1 : 0;
  output_logits(first, count - first, logits);
}

// `residual` is what the previous layer left to add to the residual stream, null before the first; returns this
// layer's.
const float* Decoder::run_layer(size_t index, size_t count, size_t position, KVCache& cache, const float* residual) {
  Workspace& w = *work_;
  const DecoderLayer& layer = *layers_[index];
  project_qkv(index, count, position, cache, residual);
  attend(index, count, position, cache);
  quantize_rows(count, w.attn.as<float>(), w.attn_q);
  layer.o_proj.forward(*pool_, count, w.attn_q, 0, w.projected.as<float>());
  add_bias(count, layer.o_bias, w.projected.as<float>());

  norm_quantize(count, w.projected.as<float>(), layer.post_attention_layernorm);
  layer.gate_up_proj.forward(*pool_, count, w.normed_q, 0, w.gate_up.as<float>());
  add_bias(count, layer.gate_up_bias, w.gate_up.as<float>());
  swiglu_quantize(count);
  layer.down_proj.forward(*pool_, count, w.act_q, 0, w.projected.as<float>());
  add_bias(count, layer.down_bias, w.projected.as<float>());
  return w.projected.as<float>();
}

void Decoder::project_qkv(size_t index, size_t count, size_t position, KVCache& cache, const float* residual) {
  norm_quantize(count, residual, layers_[index]->input_layernorm);
  layers_[index]->qkv_proj.forward(*pool_, count, work_->normed_q, 0, work_->qkv.as<float>());
  bias_norm_qkv(*layers_[index], count);
  rope_quantize_append(index, count, position, cache);
}

void Decoder::check_finite(size_t count, size_t position) const {
  if (!work_->finite.load())
    throw NumericError(
        message("NaN or Inf in q, k or v of the tokens at positions ", position, " to ", position + count - 1));
}

void Decoder::embed(const int32_t* ids, size_t count) {
  float* hidden = work_->hidden.as<float>();
  pool_->parallel_for(count, [&](size_t t, int) {
    dequantize_packed_row(*embed_tokens_, static_cast<size_t>(ids[t]), hidden + t * config_.hidden_size);
  });
}

void Decoder::norm_quantize(size_t count, const float* add, const std::vector<float>& weight) {
  Workspace& w = *work_;
  const KernelTable& table = active_table();
  const size_t n = config_.hidden_size;
  pool_->parallel_for(count, [&](size_t t, int) {
    float* hidden = w.hidden.as<float>() + t * n;
    float* normed = w.normed.as<float>() + t * n;
    if (add != nullptr)
      for (size_t i = 0; i < n; ++i) hidden[i] = hidden[i] + add[t * n + i];
    table.rmsnorm_f32(n, hidden, weight.data(), config_.rms_norm_eps, normed);
    w.normed_q.quantize_row(table, t, normed);
  });
}

void Decoder::bias_norm_qkv(const DecoderLayer& layer, size_t count) {
  if (layer.qkv_bias.empty() && layer.q_norm.empty() && layer.k_norm.empty() && layer.qk_scale.empty()) return;
  const KernelTable& table = active_table();
  const size_t d = config_.head_dim, q_heads = config_.num_attention_heads;
  const size_t group = q_heads / config_.num_key_value_heads;
  pool_->parallel_for(count, [&](size_t t, int) {
    float* qkv = work_->qkv.as<float>() + t * qkv_heads() * d;
    for (size_t i = 0; i < layer.qkv_bias.size(); ++i) qkv[i] = qkv[i] + layer.qkv_bias[i];
    for (size_t h = 0; h < q_heads + config_.num_key_value_heads; ++h) {
      const std::vector<float>& norm = h < q_heads ? layer.q_norm : layer.k_norm;
      float* head = qkv + h * d;
      if (!norm.empty()) table.rmsnorm_f32(d, head, norm.data(), config_.rms_norm_eps, head);
      if (layer.qk_scale.empty()) continue;
      const float* scale = &layer.qk_scale[(h < q_heads ? h / group : h - q_heads) * d];
      for (size_t i = 0; i < d; ++i) head[i] = h < q_heads ? head[i] * scale[i] : head[i] / scale[i];
    }
  });
}

// Adds it to each row of y, [count][bias.size()]; an empty one to none.
void Decoder::add_bias(size_t count, const std::vector<float>& bias, float* y) {
  if (bias.empty()) return;
  pool_->parallel_for(count, [&](size_t t, int) {
    float* row = y + t * bias.size();
    for (size_t i = 0; i < bias.size(); ++i) row[i] = row[i] + bias[i];
  });
}

void Decoder::rope_quantize_append(size_t layer, size_t count, size_t position, KVCache& cache) {
  const size_t first = position / kAppendTokens, last = (position + count - 1) / kAppendTokens;
  pool_->parallel_for(last - first + 1, [&](size_t item, int) {
    const size_t begin = std::max((first + item) * kAppendTokens, position);
    const size_t end = std::min((first + item + 1) * kAppendTokens, position + count);
    for (size_t t = begin - position; t < end - position; ++t) rope_quantize_q(t, count);
    for (size_t h = 0; h < config_.num_key_value_heads; ++h)
      rope_quantize_append_kv(layer, h, begin - position, end - begin, position, cache);
  });
}

// Attention must not see NaN; the batch fails at its end.
float Decoder::checked_scale(float scale) const {
  if (std::isfinite(scale)) return scale;
  work_->finite.store(false, std::memory_order_relaxed);
  return 0.0f;
}

void Decoder::rope_quantize_q(size_t token, size_t count) {
  Workspace& w = *work_;
  const KernelTable& table = active_table();
  const size_t d = config_.head_dim, heads = config_.num_attention_heads, group = heads / config_.num_key_value_heads;
  for (size_t h = 0; h < heads; ++h) {
    float* q = w.qkv.as<float>() + (token * qkv_heads() + h) * d;
    const size_t row = (h / group * count + token) * group + h % group;
    float scale;
    apply_rope(token, q);
    rotate_quantize(table, d, q, w.q.as<int8_t>() + row * d, &scale);
    w.q_scale.as<float>()[row] = checked_scale(scale);
  }
}

void Decoder::rope_quantize_append_kv(size_t layer, size_t head, size_t first, size_t tokens, size_t position,
                                      KVCache& cache) {
  Workspace& w = *work_;
  const KernelTable& table = active_table();
  const size_t d = config_.head_dim;
  const std::vector<float>& center = layers_[layer]->k_center;
  int8_t k8[kAppendTokens * kMaxHeadDim], v8[kAppendTokens * kMaxHeadDim];
  float k_scale[kAppendTokens], v_scale[kAppendTokens];
  for (size_t i = 0; i < tokens; ++i) {
    const size_t token = first + i;
    float* k = w.qkv.as<float>() + (token * qkv_heads() + config_.num_attention_heads + head) * d;
    const float* v = k + config_.num_key_value_heads * d;
    apply_rope(token, k);
    for (size_t c = 0; c < (center.empty() ? 0 : d); ++c) k[c] = k[c] - center[head * d + c];
    rotate_quantize(table, d, k, k8 + i * d, &k_scale[i]);
    rotate_quantize(table, d, v, v8 + i * d, &v_scale[i]);
    k_scale[i] = checked_scale(k_scale[i]);
    v_scale[i] = checked_scale(v_scale[i]);
  }
  cache.write(layer, head, position + first, tokens, k8, k_scale, v8, v_scale);
}

void Decoder::attend(size_t layer, size_t count, size_t position, const KVCache& cache) {
  Workspace& w = *work_;
  const float scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
  const AttentionShape shape{config_.num_attention_heads,
                             config_.num_key_value_heads,
                             config_.head_dim,
                             count,
                             Mask{position + count, position, /*causal=*/true, layers_[layer]->sliding_window},
                             scale};
  const AttentionOutput out{w.attn.as<float>(), config_.num_attention_heads * config_.head_dim, config_.head_dim};
  attention(*pool_, shape, w.q.as<int8_t>(), w.q_scale.as<float>(), cache, layer, out, w.attention);
}

void Decoder::quantize_rows(size_t count, const float* x, Activations& y) {
  const KernelTable& table = active_table();
  pool_->parallel_for(count, [&](size_t t, int) { y.quantize_row(table, t, x + t * y.k()); });
}

void Decoder::swiglu_quantize(size_t count) {
  Workspace& w = *work_;
  const KernelTable& table = active_table();
  const size_t n = config_.intermediate_size;
  pool_->parallel_for(count, [&](size_t t, int) {
    const float* gate = w.gate_up.as<float>() + t * 2 * n;
    float* act = w.act.as<float>() + t * n;
    table.swiglu_f32(n, gate, gate + n, act);
    w.act_q.quantize_row(table, t, act);
  });
}

void Decoder::apply_rope(size_t token, float* head) const {
  const size_t dim = config_.rope.dim(), offset = token * (dim / 2);
  active_table().rope_f32(dim, work_->cos.as<float>() + offset, work_->sin.as<float>() + offset, head);
}

void Decoder::output_logits(size_t first, size_t count, float* logits) {
  lm_head_.forward(*pool_, count, work_->normed_q, first, logits);
  const size_t n = count * config_.vocab_size;
  for (size_t i = 0; i < n; ++i)
    if (!std::isfinite(logits[i]))
      throw NumericError(
          message("logit ", i % config_.vocab_size, " of row ", i / config_.vocab_size, " is ", logits[i]));
}

}  // namespace intattention
