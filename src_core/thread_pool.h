// A small pool: the caller and threads()-1 workers take items of a parallel loop dynamically.
//
// Workers spin for a moment after a loop (a decoder step is hundreds of loops a few microseconds
// apart) and then sleep. Which thread runs an item must not influence any result.
// One loop at a time: concurrent callers wait for each other.
// The child of a fork() may go on using the pool: it starts workers of its own with its first loop.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "fork_hook.h"

namespace intattention {

class ThreadPool {
 public:
  // threads = 0: one per CPU of `cpus`, or default_thread_count(). cpus: the CPUs the threads may run
  // on; empty pins to the performance cores where those are a part of the machine (big.LITTLE) and
  // enough for `threads`, else nowhere. Throws InvalidArgument for a CPU this process may not use.
  ThreadPool(int threads, std::vector<int> cpus);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  const std::vector<int>& cpus() const { return cpus_; }

  // Calls body(item, worker) once for each item in [0, count), worker in [0, threads()).
  // The first exception of a body is rethrown here after the loop has stopped.
  template <typename Body>
  void parallel_for(size_t count, Body&& body) {
    using Stored = std::remove_reference_t<Body>;
    run(
        count, [](void* context, size_t item, int worker) { (*static_cast<Stored*>(context))(item, worker); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

  // Binds the calling thread to cpus() for its lifetime, so that the caller's share of the work runs
  // where the workers run; restores the former affinity.
  class CallerPin {
   public:
    explicit CallerPin(const ThreadPool& pool);
    ~CallerPin();
    CallerPin(const CallerPin&) = delete;
    CallerPin& operator=(const CallerPin&) = delete;

   private:
    std::vector<int> former_;
  };

 private:
  using Invoke = void (*)(void* context, size_t item, int worker);

  void run(size_t count, Invoke invoke, void* context);
  void start_workers();
  void stop_workers();
  void forget_workers();
  void take_items(int worker);
  void worker_loop(int worker);
  bool wait_for_job(unsigned seen);

  int threads_;
  std::vector<int> cpus_;
  std::vector<std::thread> workers_;  // threads_ - 1, or none yet in the child of a fork
  std::mutex caller_mutex_;           // one loop at a time

  // The current loop; written by the caller before generation_ is raised.
  Invoke invoke_ = nullptr;
  void* context_ = nullptr;
  size_t count_ = 0;
  std::exception_ptr error_;
  std::mutex error_mutex_;

  std::atomic<size_t> next_{0};
  std::atomic<int> running_{0};  // workers that have not finished the current loop
  std::atomic<unsigned> generation_{0};
  std::atomic<bool> stop_{false};
  std::atomic<int> sleepers_{0};
  std::mutex sleep_mutex_;
  std::condition_variable wake_;
  ForkHook fork_hook_{[this] { forget_workers(); }};
};

}  // namespace intattention
