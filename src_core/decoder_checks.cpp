// The checks of Decoder: what does not fit is said with its numbers before anything runs.
#include <cmath>

#include "decoder.h"
#include "error.h"
#include "forward_check.h"

namespace intattention {
namespace {

void check_shape(const char* name, size_t got_out, size_t got_in, size_t out, size_t in) {
  if (got_out != out || got_in != in)
    throw InvalidArgument(
        message("decoder: ", name, " is (", got_out, ", ", got_in, "), expected (", out, ", ", in, ")"));
}

void check_linear(const char* name, const LinearW4A8& linear, const std::vector<size_t>& parts, size_t in) {
  if (linear.parts().size() != parts.size())
    throw InvalidArgument(
        message("decoder: ", name, " has ", linear.parts().size(), " parts, expected ", parts.size()));
  for (size_t i = 0; i < parts.size(); ++i)
    check_shape(name, linear.parts()[i]->out_features, linear.in_features(), parts[i], in);
}

void check_vector(const char* name, const std::vector<float>& weight, size_t n) {
  if (weight.size() != n)
    throw InvalidArgument(message("decoder: ", name, " has ", weight.size(), " weights, expected ", n));
  for (size_t i = 0; i < n; ++i)
    if (!std::isfinite(weight[i])) throw InvalidArgument(message("decoder: ", name, "[", i, "] is ", weight[i]));
}

void check_optional(const char* name, const std::vector<float>& weight, size_t n) {
  if (!weight.empty()) check_vector(name, weight, n);
}

// Another factor for the two elements of a rotary pair would not commute with RoPE.
void check_qk_scale(const std::vector<float>& scale, size_t head_dim, size_t rotary_dim) {
  const size_t half = rotary_dim / 2;
  for (size_t i = 0; i < scale.size(); ++i) {
    int exponent;
    if (!(scale[i] > 0.0f && std::frexp(scale[i], &exponent) == 0.5f))
      throw InvalidArgument(message("decoder: qk_scale[", i, "] is ", scale[i], ", expected a power of two"));
    if (i % head_dim < half && scale[i] != scale[i + half])
      throw InvalidArgument(
          message("decoder: qk_scale[", i, "] is ", scale[i], " and its rotary partner's ", scale[i + half]));
  }
}

void check_rope(const Rope& rope, size_t head_dim) {
  if (rope.dim() % 16 != 0 || rope.dim() > head_dim)
    throw InvalidArgument(message("decoder: ", rope.dim(), " elements of a head rotate, expected a multiple of 16, ",
                                  "at most head_dim ", head_dim));
  for (size_t i = 0; i < rope.inverse_frequency.size(); ++i)
    if (!(std::isfinite(rope.inverse_frequency[i]) && rope.inverse_frequency[i] >= 0.0))
      throw InvalidArgument(message("decoder: rotary frequency ", i, " is ", rope.inverse_frequency[i]));
  if (!(std::isfinite(rope.attention_factor) && rope.attention_factor > 0.0))
    throw InvalidArgument(message("decoder: the rotary attention factor is ", rope.attention_factor));
}

void check_config(const DecoderConfig& c) {
  constexpr size_t kMaxDim = size_t{1} << 24, kMaxLayers = 4096, kMaxHeads = 4096;
  if (c.vocab_size == 0 || c.vocab_size > kMaxDim || c.num_hidden_layers == 0 || c.num_hidden_layers > kMaxLayers)
    throw InvalidArgument(
        message("decoder: vocab_size ", c.vocab_size, " or num_hidden_layers ", c.num_hidden_layers, " out of range"));
  if (c.hidden_size == 0 || c.hidden_size % kGroup != 0 || c.hidden_size > kMaxDim || c.intermediate_size == 0 ||
      c.intermediate_size % kGroup != 0 || c.intermediate_size > kMaxDim)
    throw InvalidArgument(message("decoder: hidden_size ", c.hidden_size, " and intermediate_size ",
                                  c.intermediate_size, " must be multiples of ", kGroup, ", at most ", kMaxDim));
  if (c.num_key_value_heads == 0 || c.num_attention_heads == 0 || c.num_attention_heads > kMaxHeads ||
      c.num_attention_heads % c.num_key_value_heads != 0)
    throw InvalidArgument(message("decoder: num_attention_heads ", c.num_attention_heads,
                                  " is not a multiple of num_key_value_heads ", c.num_key_value_heads));
  if (c.head_dim == 0 || c.head_dim % 16 != 0 || c.head_dim > kMaxHeadDim ||
      c.num_attention_heads * c.head_dim % kGroup != 0)
    throw InvalidArgument(message("decoder: head_dim ", c.head_dim, " must be a multiple of 16, at most ", kMaxHeadDim,
                                  ", and num_attention_heads * head_dim one of ", kGroup));
  if (!(c.rms_norm_eps >= 0.0f && c.rms_norm_eps < 1.0f))
    throw InvalidArgument(message("decoder: rms_norm_eps ", c.rms_norm_eps, " is not in [0, 1)"));
  if (!(c.rope_theta >= 1.0 && std::isfinite(c.rope_theta)))
    throw InvalidArgument(message("decoder: rope_theta ", c.rope_theta, " is not a finite number >= 1"));
  check_rope(c.rope, c.head_dim);
}

}  // namespace

void Decoder::check_weights() const {
  check_config(config_);
  const size_t hidden = config_.hidden_size, inter = config_.intermediate_size;
  const size_t q = config_.num_attention_heads * config_.head_dim, kv = config_.num_key_value_heads * config_.head_dim;
  const size_t rotary_dim = config_.rope.dim() == 0 ? config_.head_dim : config_.rope.dim();
  if (layers_.size() != config_.num_hidden_layers)
    throw InvalidArgument(
        message("decoder: ", layers_.size(), " layers given, num_hidden_layers is ", config_.num_hidden_layers));
  check_shape("embed_tokens", embed_tokens_->out_features, embed_tokens_->in_features, config_.vocab_size, hidden);
  check_linear("lm_head", lm_head_, {config_.vocab_size}, hidden);
  check_vector("norm", norm_, hidden);
  for (const auto& layer : layers_) {
    check_vector("input_layernorm", layer->input_layernorm, hidden);
    check_vector("post_attention_layernorm", layer->post_attention_layernorm, hidden);
    check_linear("qkv_proj", layer->qkv_proj, {q, kv, kv}, hidden);
    check_linear("o_proj", layer->o_proj, {hidden}, q);
    check_linear("gate_up_proj", layer->gate_up_proj, {inter, inter}, hidden);
    check_linear("down_proj", layer->down_proj, {hidden}, inter);
    check_optional("qkv_bias", layer->qkv_bias, q + 2 * kv);
    check_optional("o_bias", layer->o_bias, hidden);
    check_optional("gate_up_bias", layer->gate_up_bias, 2 * inter);
    check_optional("down_bias", layer->down_bias, hidden);
    check_optional("q_norm", layer->q_norm, config_.head_dim);
    check_optional("k_norm", layer->k_norm, config_.head_dim);
    check_optional("k_center", layer->k_center, kv);
    check_optional("qk_scale", layer->qk_scale, kv);
    check_qk_scale(layer->qk_scale, config_.head_dim, rotary_dim);
  }
}

void Decoder::check_call(const std::vector<DecoderInput>& inputs) const {
  if (inputs.empty()) throw InvalidArgument("forward: no sequences");
  for (const DecoderInput& input : inputs) check_forward(config_, input.ids, input.count, *input.cache);
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (inputs[i].cache == inputs[j].cache)
        throw InvalidArgument(message("forward: sequences ", j, " and ", i, " have the same cache"));
}

size_t Decoder::nbytes() const {
  size_t bytes = embed_tokens_->data.size();
  if (lm_head_.parts().front() != embed_tokens_) bytes += lm_head_.parts().front()->data.size();
  for (const auto& layer : layers_)
    for (const LinearW4A8* linear : {&layer->qkv_proj, &layer->o_proj, &layer->gate_up_proj, &layer->down_proj})
      for (const auto& part : linear->parts()) bytes += part->data.size();
  return bytes;
}

}  // namespace intattention
