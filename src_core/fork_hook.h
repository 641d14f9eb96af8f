// What fork() leaves behind: the child has only the thread that forked, and locks that other threads held stay locked.
#pragma once

#include <functional>
#include <new>

namespace intattention {

// Calls `in_child` in every child that is forked while the hook lives, before anything else runs there. Make it the
// last member, so that it lives no longer than what the function touches.
class ForkHook {
 public:
  explicit ForkHook(std::function<void()> in_child);
  ~ForkHook();
  ForkHook(const ForkHook&) = delete;
  ForkHook& operator=(const ForkHook&) = delete;

 private:
  std::function<void()> in_child_;
};

// Puts a fresh object in the place of one that the child must neither use nor destroy.
template <typename T>
void abandon(T& object) {
  new (&object) T();
}

}  // namespace intattention
