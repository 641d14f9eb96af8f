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

struct Decoder::Workspace {
  size_t capacity;          // tokens
  AlignedBuffer hidden;     // f32 [T][hidden], the residual stream
  AlignedBuffer normed;     // f32 [T][hidden], one row per token in flight
  AlignedBuffer qkv;        // f32 [T][(heads + 2 kv_heads) * head_dim]
  AlignedBuffer q;          // s8, of each segment [kv_heads][count][group][head_dim], one after the other
  AlignedBuffer q_scale;    // f32, of each segment [kv_heads][count][group]
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
  forward({{ids, count, &cache, rows}}, logits);
}

void Decoder::forward(const std::vector<DecoderInput>& inputs, float* logits) {
  std::lock_guard<std::mutex> lock(mutex_);
  const std::vector<Pass> passes = prepare(inputs);
  const ThreadPool::CallerPin pin(*pool_);
  for (const Pass& pass : passes) {
    forward_pass(pass, logits);
    logits += pass.logit_rows.size() * config_.vocab_size;
  }
  for (const DecoderInput& input : inputs) input.cache->set_length(input.cache->length() + input.count);
}

void Decoder::capture_qkv(const int32_t* ids, size_t count, KVCache& cache, size_t layer, float* qkv) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (layer >= layers_.size())
    throw InvalidArgument(message("capture: layer ", layer, " of a model with ", layers_.size()));
  const std::vector<Pass> passes = prepare({{ids, count, &cache, LogitRows::kNone}});
  const ThreadPool::CallerPin pin(*pool_);
  for (const Pass& pass : passes) {
    embed(pass);
    const float* residual = nullptr;
    for (size_t i = 0; i < layer; ++i) residual = run_layer(i, pass, residual);
    project_qkv(layer, pass, residual);
    check_finite(pass);
    qkv = std::copy_n(work_->qkv.as<float>(), pass.rows * layers_[layer]->qkv_proj.out_features(), qkv);
  }
}

// Checks the call, takes the memory and resets the flag of non-finite values.
std::vector<Pass> Decoder::prepare(const std::vector<DecoderInput>& inputs) {
  check_call(inputs);
  for (const DecoderInput& input : inputs) input.cache->reserve(input.cache->length() + input.count);
  std::vector<Pass> passes = plan_passes(inputs, kMaxBatch);
  const size_t rows = passes.front().rows;  // the largest
  if (!work_ || work_->capacity < rows) work_ = std::make_shared<Workspace>(config_, rows);
  work_->finite.store(true);
  return passes;
}

void Decoder::forward_pass(const Pass& pass, float* logits) {
  embed(pass);
  const float* residual = nullptr;
  for (size_t i = 0; i < layers_.size(); ++i) residual = run_layer(i, pass, residual);
  check_finite(pass);
  norm_quantize(pass.logit_rows.size(), residual, norm_, pass.logit_rows.data());
  output_logits(pass.logit_rows.size(), logits);
}

// `residual` is what the previous layer left to add to the residual stream, null before the first; returns this
// layer's.
const float* Decoder::run_layer(size_t index, const Pass& pass, const float* residual) {
  Workspace& w = *work_;
  const DecoderLayer& layer = *layers_[index];
  project_qkv(index, pass, residual);
  attend(index, pass);
  quantize_rows(pass.rows, w.attn.as<float>(), w.attn_q);
  layer.o_proj.forward(*pool_, pass.rows, w.attn_q, 0, w.projected.as<float>());
  add_bias(pass.rows, layer.o_bias, w.projected.as<float>());

  norm_quantize(pass.rows, w.projected.as<float>(), layer.post_attention_layernorm);
  layer.gate_up_proj.forward(*pool_, pass.rows, w.normed_q, 0, w.gate_up.as<float>());
  add_bias(pass.rows, layer.gate_up_bias, w.gate_up.as<float>());
  swiglu_quantize(pass.rows);
  layer.down_proj.forward(*pool_, pass.rows, w.act_q, 0, w.projected.as<float>());
  add_bias(pass.rows, layer.down_bias, w.projected.as<float>());
  return w.projected.as<float>();
}

void Decoder::project_qkv(size_t index, const Pass& pass, const float* residual) {
  norm_quantize(pass.rows, residual, layers_[index]->input_layernorm);
  layers_[index]->qkv_proj.forward(*pool_, pass.rows, work_->normed_q, 0, work_->qkv.as<float>());
  bias_norm_qkv(*layers_[index], pass.rows);
  rope_quantize_append(index, pass);
}

void Decoder::check_finite(const Pass& pass) const {
  if (work_->finite.load()) return;
  const Segment& first = pass.segments.front();
  throw NumericError(message("NaN or Inf in q, k or v of the tokens at positions ", first.position, " to ",
                             first.position + first.count - 1,
                             pass.segments.size() > 1 ? ", or in another sequence of the batch" : ""));
}

void Decoder::embed(const Pass& pass) {
  Workspace& w = *work_;
  const size_t hidden = config_.hidden_size, pairs = config_.rope.dim() / 2;
  for (const Segment& segment : pass.segments) {
    config_.rope.angles(segment.position, segment.count, w.cos.as<float>() + segment.row * pairs,
                        w.sin.as<float>() + segment.row * pairs);
    pool_->parallel_for(segment.count, [&](size_t t, int) {
      dequantize_packed_row(*embed_tokens_, static_cast<size_t>(segment.ids[t]),
                            w.hidden.as<float>() + (segment.row + t) * hidden);
    });
  }
}

// Row i of the normed ones is rows[i] of the residual stream, all in order if `rows` is null.
void Decoder::norm_quantize(size_t count, const float* add, const std::vector<float>& weight, const size_t* rows) {
  Workspace& w = *work_;
  const KernelTable& table = active_table();
  const size_t n = config_.hidden_size;
  pool_->parallel_for(count, [&](size_t i, int) {
    const size_t row = rows == nullptr ? i : rows[i];
    float* hidden = w.hidden.as<float>() + row * n;
    float* normed = w.normed.as<float>() + row * n;
    if (add != nullptr)
      for (size_t c = 0; c < n; ++c) hidden[c] = hidden[c] + add[row * n + c];
    table.rmsnorm_f32(n, hidden, weight.data(), config_.rms_norm_eps, normed);
    w.normed_q.quantize_row(table, i, normed);
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

void Decoder::rope_quantize_append(size_t layer, const Pass& pass) {
  pool_->parallel_for(pass.spans.size(), [&](size_t item, int) {
    const AppendSpan& span = pass.spans[item];
    const Segment& segment = pass.segments[span.segment];
    for (size_t t = span.first; t < span.first + span.count; ++t) rope_quantize_q(segment, t);
    for (size_t h = 0; h < config_.num_key_value_heads; ++h) rope_quantize_append_kv(layer, h, segment, span);
  });
}

// Attention must not see NaN; the batch fails at its end.
float Decoder::checked_scale(float scale) const {
  if (std::isfinite(scale)) return scale;
  work_->finite.store(false, std::memory_order_relaxed);
  return 0.0f;
}

void Decoder::rope_quantize_q(const Segment& segment, size_t token) {
  Workspace& w = *work_;
  const KernelTable& table = active_table();
  const size_t d = config_.head_dim, heads = config_.num_attention_heads, group = heads / config_.num_key_value_heads;
  for (size_t h = 0; h < heads; ++h) {
    float* q = w.qkv.as<float>() + ((segment.row + token) * qkv_heads() + h) * d;
    const size_t row = segment.row * heads + (h / group * segment.count + token) * group + h % group;
    float scale;
    apply_rope(segment.row + token, q);
    rotate_quantize(table, d, q, w.q.as<int8_t>() + row * d, &scale);
    w.q_scale.as<float>()[row] = checked_scale(scale);
  }
}

void Decoder::rope_quantize_append_kv(size_t layer, size_t head, const Segment& segment, const AppendSpan& span) {
  Workspace& w = *work_;
  const KernelTable& table = active_table();
  const size_t d = config_.head_dim;
  const std::vector<float>& center = layers_[layer]->k_center;
  int8_t k8[kAppendTokens * kMaxHeadDim], v8[kAppendTokens * kMaxHeadDim];
  float k_scale[kAppendTokens], v_scale[kAppendTokens];
  for (size_t i = 0; i < span.count; ++i) {
    const size_t row = segment.row + span.first + i;
    float* k = w.qkv.as<float>() + (row * qkv_heads() + config_.num_attention_heads + head) * d;
    const float* v = k + config_.num_key_value_heads * d;
    apply_rope(row, k);
    for (size_t c = 0; c < (center.empty() ? 0 : d); ++c) k[c] = k[c] - center[head * d + c];
    rotate_quantize(table, d, k, k8 + i * d, &k_scale[i]);
    rotate_quantize(table, d, v, v8 + i * d, &v_scale[i]);
    k_scale[i] = checked_scale(k_scale[i]);
    v_scale[i] = checked_scale(v_scale[i]);
  }
  segment.cache->write(layer, head, segment.position + span.first, span.count, k8, k_scale, v8, v_scale);
}

void Decoder::attend(size_t layer, const Pass& pass) {
  Workspace& w = *work_;
  const size_t d = config_.head_dim, heads = config_.num_attention_heads, width = heads * d;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  std::vector<AttentionInput> inputs;
  for (const Segment& s : pass.segments) {
    const Mask mask{s.position + s.count, s.position, /*causal=*/true, layers_[layer]->sliding_window};
    inputs.push_back({{heads, config_.num_key_value_heads, d, s.count, mask, scale},
                      w.q.as<int8_t>() + s.row * width,
                      w.q_scale.as<float>() + s.row * heads,
                      s.cache,
                      {w.attn.as<float>() + s.row * width, width, d}});
  }
  attention(*pool_, inputs, layer, w.attention);
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

void Decoder::apply_rope(size_t row, float* head) const {
  const size_t dim = config_.rope.dim(), offset = row * (dim / 2);
  active_table().rope_f32(dim, work_->cos.as<float>() + offset, work_->sin.as<float>() + offset, head);
}

void Decoder::output_logits(size_t count, float* logits) {
  lm_head_.forward(*pool_, count, work_->normed_q, 0, logits);
  const size_t n = count * config_.vocab_size;
  for (size_t i = 0; i < n; ++i)
    if (!std::isfinite(logits[i]))
      throw NumericError(
          message("logit ", i % config_.vocab_size, " of row ", i / config_.vocab_size, " is ", logits[i]));
}

}  // namespace intattention
