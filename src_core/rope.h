// Rope position embedding: which pairs of a head vector turn, and how fast.
#pragma once

#include <cstddef>
#include <vector>

namespace intattention {

// Pairs (i, i + dim/2) of the first `dim` elements turn by position * inverse_frequency[i]; the rest stays.
// Scaled variants (linear, NTK, llama3, yarn, longrope) are other frequencies and an attention factor; whoever reads
// the model's configuration computes them (intattention/models/rope.py).
struct Rope {
  std::vector<double> inverse_frequency;  // [dim / 2], radians per token
  double attention_factor = 1.0;          // on cos and sin: q and k grow by it

  size_t dim() const { return 2 * inverse_frequency.size(); }

  // f32 [count][dim / 2] for positions position .. position+count-1; computed in double, rounded once.
  void angles(size_t position, size_t count, float* cos, float* sin) const;
};

// The plain frequencies theta^(-2i / dim).
std::vector<double> plain_frequencies(double theta, size_t dim);

}  // namespace intattention
