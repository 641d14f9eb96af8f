#include "handles.h"

using namespace intattention;
using namespace intattention::capi;

ia_status ia_context_create(const ia_context_options* given, ia_context** context) {
  return guarded([&] {
    required(context, "context");
    const ia_context_options options = options_of(given);
    if (options.cpus == nullptr && options.cpu_count != 0) throw InvalidArgument("cpu_count without cpus");
    const ia_allocator& a = options.allocator;
    if ((a.allocate == nullptr) != (a.release == nullptr))
      throw InvalidArgument("an allocator needs both allocate and release");
    std::vector<int> cpus;
    if (options.cpus != nullptr) cpus.assign(options.cpus, options.cpus + options.cpu_count);
    auto shared = std::make_shared<Shared>(Shared{nullptr, {a.allocate, a.release, a.user}});
    shared->pool = std::make_shared<ThreadPool>(options.threads, std::move(cpus));
    auto made = std::make_unique<ia_context>();
    made->shared = std::move(shared);
    *context = made.release();
  });
}

void ia_context_destroy(ia_context** context) { destroy(context); }

ia_status ia_context_threads(const ia_context* context, int* threads) {
  return guarded([&] { required(threads, "threads") = checked(context, "context").shared->pool->threads(); });
}
