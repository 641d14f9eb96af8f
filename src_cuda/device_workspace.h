// What the kernels of a step hand each other.
#pragma once

#include <algorithm>

#include "decoder.h"
#include "device_buffer.h"
#include "kernels.h"

namespace intattention::cuda {

// Rows of logits that are computed at once.
constexpr size_t kLogitRows = 64;

struct RowsBuffer {
  DeviceBuffer q, scale, sum;
  size_t k = 0;

  RowsBuffer() = default;
  RowsBuffer(size_t tokens, size_t width)
      : q(tokens * width), scale(tokens * width / kGroup * sizeof(float)), sum(tokens * width / kGroup * 4), k(width) {}
  DeviceRows rows() const { return {q.as<int8_t>(), scale.as<float>(), sum.as<int32_t>()}; }
};

// For `tokens` tokens at once and caches of up to `capacity`.
struct DeviceWorkspace {
  size_t tokens, capacity;
  DeviceBuffer ids, hidden, hidden_sum, qkv, q, q_scale, attn, projected, gate_up, logits;
  RowsBuffer normed, attn_q, act;
  DeviceBuffer part_head, part_out, part_weights, part_arrived, best_value, best_index, chosen;
  DeviceBuffer state;
  GemvScratch gemv;
  PinnedBuffer host_state, host_ids;

  DeviceWorkspace(const DecoderConfig& c, size_t token_count, size_t cache_capacity)
      : tokens(token_count),
        capacity(cache_capacity),
        ids(token_count * sizeof(int32_t)),
        hidden(token_count * c.hidden_size * sizeof(float)),
        hidden_sum(c.hidden_size * sizeof(float)),
        qkv(token_count * (c.num_attention_heads + 2 * c.num_key_value_heads) * c.head_dim * sizeof(float)),
        q(token_count * c.num_attention_heads * c.head_dim),
        q_scale(token_count * c.num_attention_heads * sizeof(float)),
        attn(token_count * c.num_attention_heads * c.head_dim * sizeof(float)),
        projected(token_count * c.hidden_size * sizeof(float)),
        gate_up(token_count * 2 * c.intermediate_size * sizeof(float)),
        logits(std::min(token_count, kLogitRows) * c.vocab_size * sizeof(float)),
        normed(token_count, c.hidden_size),
        attn_q(token_count, c.num_attention_heads * c.head_dim),
        act(token_count, c.intermediate_size),
        part_head(c.num_attention_heads * blocks() * sizeof(int4)),
        part_out(c.num_attention_heads * blocks() * c.head_dim * sizeof(int32_t)),
        part_weights(c.num_attention_heads * blocks() * kKeyBlock),
        part_arrived(c.num_attention_heads * sizeof(uint32_t)),
        best_value(kArgmaxBlocks * sizeof(float)),
        best_index(kArgmaxBlocks * sizeof(int32_t)),
        chosen(cache_capacity * sizeof(int32_t)),
        state(sizeof(StepState)),
        host_state(sizeof(StepState)),
        host_ids(token_count * sizeof(int32_t)) {}

  size_t blocks() const { return capacity / kKeyBlock; }
  AttentionParts parts() const {
    return {part_head.as<int4>(), part_out.as<int32_t>(), part_weights.as<uint8_t>(), part_arrived.as<uint32_t>(),
            static_cast<uint32_t>(blocks())};
  }
};

}  // namespace intattention::cuda
