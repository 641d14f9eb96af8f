// softmax="quant_only": INT8 QK and PV around a float32 softmax, the usual INT8 attention, for comparison
// (docs/numerics.md section 8). Fused and tiled like attention().
#pragma once

#include "int8_heads.h"

namespace intattention {

// out  f32 [n_heads][q_len][head_dim]
// Results do not depend on the number of threads. Throws InvalidArgument, std::bad_alloc.
void attention_quant_only(ThreadPool& pool, const AttentionShape& shape, const Int8Heads& q, const Int8Heads& k,
                          const Int8Heads& v, float* out);

}  // namespace intattention
