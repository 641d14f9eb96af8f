// A layer's weights on the device.
#pragma once

#include <algorithm>

#include "decoder.h"
#include "device_weights.h"

namespace intattention::cuda {

struct DeviceLayer {
  DeviceBuffer input_layernorm, post_attention_layernorm, bias, q_norm, k_norm, qk_scale, k_center;
  DeviceLinear qkv, o, down;
  DeviceGateUp gate_up;
  uint32_t window;

  explicit DeviceLayer(const DecoderLayer& l)
      : input_layernorm(DeviceBuffer::of(l.input_layernorm)),
        post_attention_layernorm(DeviceBuffer::of(l.post_attention_layernorm)),
        bias(DeviceBuffer::of(l.qkv_bias)),
        q_norm(DeviceBuffer::of(l.q_norm)),
        k_norm(DeviceBuffer::of(l.k_norm)),
        qk_scale(DeviceBuffer::of(l.qk_scale)),
        k_center(DeviceBuffer::of(l.k_center)),
        qkv(l.qkv_proj),
        o(l.o_proj),
        down(l.down_proj),
        gate_up(l.gate_up_proj),
        window(static_cast<uint32_t>(std::min<size_t>(l.sliding_window, UINT32_MAX))) {}

  size_t nbytes() const { return qkv.nbytes() + o.nbytes() + down.nbytes() + gate_up.nbytes(); }
};

}  // namespace intattention::cuda
