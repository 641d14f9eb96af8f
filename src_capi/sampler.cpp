#include "handles.h"

using namespace intattention;
using namespace intattention::capi;

ia_status ia_sampler_create(const ia_sampling* given, ia_sampler** sampler) {
  return guarded([&] {
    required(sampler, "sampler");
    const ia_sampling options = options_of(given);
    const auto or_one = [](double value) { return value == 0.0 ? 1.0 : value; };
    *sampler = new ia_sampler(SamplingParams{options.temperature, or_one(options.top_p), options.min_p,
                                             or_one(options.repetition_penalty), options.top_k, options.seed});
  });
}

void ia_sampler_destroy(ia_sampler** sampler) { destroy(sampler); }

ia_status ia_sampler_see(ia_sampler* sampler, const int32_t* ids, size_t count) {
  return guarded([&] {
    ia_sampler& s = checked(sampler, "sampler");
    const InUse use(&s.in_use);
    if (count > 0) required(ids, "ids");
    for (size_t i = 0; i < count; ++i) s.sampler.see(ids[i]);
  });
}

ia_status ia_sampler_choose(ia_sampler* sampler, const float* logits, size_t count, int32_t* token) {
  return guarded([&] {
    ia_sampler& s = checked(sampler, "sampler");
    const InUse use(&s.in_use);
    if (count > 0) required(logits, "logits");
    required(token, "token");
    *token = s.sampler.choose(logits, count);
  });
}
