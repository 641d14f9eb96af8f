// Float attention in the same binary: the rivals that the integer attention is measured against
// (docs/numerics.md section 9). Tiled as attention.h is: query tiles over blocks of keys, online softmax.
#pragma once

#include "attention.h"

namespace intattention {

// kFp16: K, V and Q are rounded to float16. Where the active table has float16 arithmetic (ARM with FEAT_FP16) it is
// used; on x86-64 float16 is a storage format and the arithmetic is float32.
enum class FloatPrecision { kFp32, kFp16 };

// q, out  f32 [n_heads][q_len][head_dim];  k, v  f32 [n_kv_heads][kv_len][head_dim]; all finite
// Results do not depend on the number of threads; they differ between ISAs in the last digits.
// Throws UnsupportedIsa if the active table has no float16; InvalidArgument if kFp16 and a value does not fit into
// float16; NumericError if logits overflow; std::bad_alloc.
void attention_float(ThreadPool& pool, const AttentionShape& shape, FloatPrecision precision, const float* q,
                     const float* k, const float* v, float* out);

}  // namespace intattention
