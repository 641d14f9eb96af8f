#include "fork_hook.h"

#include <mutex>
#include <set>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace intattention {
namespace {

struct Registry {
  std::mutex mutex;  // held across fork(), so that the child finds the set whole
  std::set<const std::function<void()>*> hooks;

  Registry() {
#if defined(__unix__) || defined(__APPLE__)
    pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                   [] {
                     registry().mutex.unlock();
                     for (const std::function<void()>* hook : registry().hooks) (*hook)();
                   });
#endif
  }

  static Registry& registry() {
    static Registry* const shared = new Registry;  // never destroyed: hooks may outlive static objects
    return *shared;
  }
};

}  // namespace

ForkHook::ForkHook(std::function<void()> in_child) : in_child_(std::move(in_child)) {
  Registry& all = Registry::registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.hooks.insert(&in_child_);
}

ForkHook::~ForkHook() {
  Registry& all = Registry::registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.hooks.erase(&in_child_);
}

}  // namespace intattention
