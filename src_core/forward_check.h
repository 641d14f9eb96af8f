// What the decoders of the CPU and of the GPU refuse alike.
#pragma once

#include <cstdint>

#include "decoder.h"
#include "error.h"

namespace intattention {

// Throws InvalidArgument unless `ids` are tokens of the model and the cache was made for it. Cache: KVCache's sizes.
template <typename Cache>
void check_forward(const DecoderConfig& config, const int32_t* ids, size_t count, const Cache& cache) {
  if (count == 0) throw InvalidArgument("forward: no token ids");
  for (size_t i = 0; i < count; ++i)
    if (ids[i] < 0 || static_cast<size_t>(ids[i]) >= config.vocab_size)
      throw InvalidArgument(
          message("forward: id ", ids[i], " at index ", i, " is outside the vocabulary of ", config.vocab_size));
  if (cache.n_layers() != config.num_hidden_layers || cache.n_kv_heads() != config.num_key_value_heads ||
      cache.head_dim() != config.head_dim)
    throw InvalidArgument(message("forward: the cache is for ", cache.n_layers(), " layers, ", cache.n_kv_heads(),
                                  " kv heads, head_dim ", cache.head_dim(), "; the model has ",
                                  config.num_hidden_layers, ", ", config.num_key_value_heads, ", ", config.head_dim));
}

}  // namespace intattention
