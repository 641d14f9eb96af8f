// softmax="paper": attention as published (IntAttention, arXiv 2511.21513), bit-exact, for comparison
// (docs/numerics.md section 7). Not the default: P = round(255 E / rowSum) loses every weight below 1/510.
#pragma once

#include "int8_heads.h"
#include "paper_index.h"

namespace intattention {

// out    f32 [n_heads][q_len][head_dim]
// probs  null, or u8 [n_heads][q_len][kv_len]: P, 0 where masked
// Results do not depend on the number of threads. Throws InvalidArgument, std::bad_alloc.
void attention_paper(ThreadPool& pool, const AttentionShape& shape, const Int8Heads& q, const Int8Heads& k,
                     const Int8Heads& v, PaperRounding rounding, float* out, uint8_t* probs);

}  // namespace intattention
