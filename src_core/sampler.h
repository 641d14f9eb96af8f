// From logits to the next token. The same seed gives the same tokens on every machine: the generator is
// std::mt19937_64, which the C++ standard fixes to the bit, and exp is exp_f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <unordered_set>
#include <vector>

namespace intattention {

// temperature: 0 takes the most likely token (the lowest id on ties), else logits are divided by it. top_k: keep the k
// most likely (0: all). top_p: keep the fewest whose probabilities add up to top_p. min_p: drop what is less likely
// than min_p times the best. repetition_penalty, 1e-6 to 1e6: positive logits of tokens already seen are divided by it,
// negative ones multiplied, at most to the largest float. Applied in the order repetition_penalty, temperature, top_k,
// top_p, min_p.
struct SamplingParams {
  double temperature = 0.0, top_p = 1.0, min_p = 0.0, repetition_penalty = 1.0;
  uint64_t top_k = 0, seed = 0;
};

// Ids that may be chosen and their probabilities, not renormalised after the cuts.
struct Candidates {
  std::vector<int32_t> ids;
  std::vector<double> probabilities;
};

class Sampler {
 public:
  explicit Sampler(const SamplingParams& params);  // throws InvalidArgument

  void see(int32_t token) { seen_.insert(token); }  // for the repetition penalty
  // The next token, which has then been seen. A logit of -inf is never chosen. Throws InvalidArgument for no logits,
  // for NaN or +inf, or if none is finite.
  int32_t choose(const float* logits, size_t count);
  // Needs temperature > 0. In order of id; most likely first if top_p cuts.
  Candidates candidates(const float* logits, size_t count) const;

 private:
  const float* penalized(const float* logits, size_t count);

  SamplingParams params_;
  std::mt19937_64 random_;
  std::unordered_set<int32_t> seen_;
  std::vector<float> scratch_;
};

}  // namespace intattention
