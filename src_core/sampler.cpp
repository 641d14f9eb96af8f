#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "error.h"
#include "exp_f32.h"

namespace intattention {
namespace {

void check(const char* name, double value, double low, double high, bool zero = true) {
  if (!(value >= low && value <= high) || (value == 0.0 && !zero))
    throw InvalidArgument(
        message("sampling: ", name, " is ", value, ", expected ", low, " to ", high, zero ? "" : ", not 0"));
}

// Below this exp_f32 is clamped; such a token is never chosen.
constexpr double kLeastExponent = -87.0;
constexpr float kLargestLogit = std::numeric_limits<float>::max();

}  // namespace

Sampler::Sampler(const SamplingParams& params) : params_(params), random_(params.seed) {
  check("temperature", params.temperature, 0, 1e6);
  check("top_p", params.top_p, 0, 1, /*zero=*/false);
  check("min_p", params.min_p, 0, 1);
  check("repetition_penalty", params.repetition_penalty, 1e-6, 1e6);
}

const float* Sampler::penalized(const float* logits, size_t count) {
  if (params_.repetition_penalty == 1.0) return logits;
  scratch_.assign(logits, logits + count);
  const auto penalty = static_cast<float>(params_.repetition_penalty);
  for (const int32_t token : seen_) {
    if (token < 0 || static_cast<size_t>(token) >= count) continue;
    float& logit = scratch_[static_cast<size_t>(token)];
    if (!std::isfinite(logit)) continue;  // -inf: never chosen, and -inf it stays
    // A logit may be as large as a float can be: past that is infinity, and infinity less infinity no probability.
    logit = std::clamp(logit > 0.0f ? logit / penalty : logit * penalty, -kLargestLogit, kLargestLogit);
  }
  return scratch_.data();
}

Candidates Sampler::candidates(const float* logits, size_t count) const {
  const float best = *std::max_element(logits, logits + count);
  std::vector<double> p(count);  // relative to the best
  for (size_t i = 0; i < count; ++i) {
    const double exponent = (static_cast<double>(logits[i]) - static_cast<double>(best)) / params_.temperature;
    const auto rounded = static_cast<float>(exponent);
    const double rest = exponent - static_cast<double>(rounded);
    p[i] = exponent < kLeastExponent ? 0.0 : static_cast<double>(exp_f32(rounded)) * (1.0 + rest);
  }
  const auto at = [&](int32_t id) { return p[static_cast<size_t>(id)]; };
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i)
    if (p[i] > 0.0) ids.push_back(static_cast<int32_t>(i));
  const auto likelier = [&](int32_t a, int32_t b) { return at(a) != at(b) ? at(a) > at(b) : a < b; };
  if (params_.top_k > 0 && params_.top_k < ids.size()) {
    const auto middle = ids.begin() + static_cast<std::ptrdiff_t>(params_.top_k);
    std::nth_element(ids.begin(), middle - 1, ids.end(), likelier);
    ids.erase(middle, ids.end());
    std::sort(ids.begin(), ids.end());
  }
  double total = 0.0;
  for (const int32_t id : ids) total += at(id);
  const auto keep_from = [&](double least) {
    ids.erase(std::remove_if(ids.begin(), ids.end(), [&](int32_t id) { return at(id) < least; }), ids.end());
  };
  keep_from(params_.min_p);
  if (params_.top_p < 1.0) {
    // Sorting a whole vocabulary is slow. Tokens under this floor have less than 1 - top_p together, so that none of
    // them is needed.
    keep_from(total * (1.0 - params_.top_p) / static_cast<double>(count));
    std::sort(ids.begin(), ids.end(), likelier);
    double sum = 0.0;
    size_t kept = 0;
    while (kept < ids.size() && sum < params_.top_p * total) sum += at(ids[kept++]);
    ids.resize(kept);
  }
  Candidates result{std::move(ids), {}};
  for (const int32_t id : result.ids) result.probabilities.push_back(at(id) / total);
  return result;
}

int32_t Sampler::choose(const float* logits, size_t count) {
  if (count == 0) throw InvalidArgument("sampling: no logits");
  bool any = false;
  for (size_t i = 0; i < count; ++i) {
    if (!(logits[i] <= kLargestLogit))  // NaN and infinity
      throw InvalidArgument(message("sampling: logit ", i, " is ", logits[i]));
    any = any || std::isfinite(logits[i]);
  }
  if (!any) throw InvalidArgument(message("sampling: all ", count, " logits are -inf"));
  logits = penalized(logits, count);
  int32_t token = static_cast<int32_t>(std::max_element(logits, logits + count) - logits);
  if (params_.temperature > 0.0) {
    const Candidates some = candidates(logits, count);
    double sum = 0.0;
    for (const double p : some.probabilities) sum += p;
    const double target = static_cast<double>(random_() >> 11) * 0x1p-53 * sum;
    sum = 0.0;
    size_t chosen = 0;
    while (chosen + 1 < some.ids.size() && (sum += some.probabilities[chosen]) <= target) ++chosen;
    token = some.ids[chosen];
  }
  see(token);
  return token;
}

}  // namespace intattention
