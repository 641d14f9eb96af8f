#include "thread_pool.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "cpu_features.h"
#include "error.h"

#if defined(__linux__)
#include <sched.h>
#endif

namespace intattention {
namespace {

// Longer than the gaps between the loops of a decoder step.
constexpr std::chrono::microseconds kSpinTime{50};
constexpr int kMaxThreads = 1024;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Spins until done() or kSpinTime has passed; whether done(). The pause instruction takes 1 cycle on some CPUs and 140
// on others, so the clock decides, read now and then.
template <typename Done>
bool spin_until(const Done& done) {
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() - start < kSpinTime);
  return done();
}

// Binds the calling thread. Failure is not an error: the work is right on any CPU.
void bind_to(const std::vector<int>& cpus) {
#if defined(__linux__)
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
#else
  (void)cpus;
#endif
}

std::string list(const std::vector<int>& cpus) {
  std::string text;
  for (int cpu : cpus) text += (text.empty() ? "" : ",") + std::to_string(cpu);
  return text;
}

std::vector<int> choose_cpus(int threads, std::vector<int> cpus) {
  const std::vector<int> allowed = allowed_cpus();
  if (!cpus.empty()) {
    for (int cpu : cpus)
      if (std::find(allowed.begin(), allowed.end(), cpu) == allowed.end())
        throw InvalidArgument(message("cpu ", cpu, " is not among the CPUs this process may use: ", list(allowed)));
    return cpus;
  }
  std::vector<int> fastest = performance_cpus();
  const bool mixed = fastest.size() < allowed.size();
  return mixed && threads <= static_cast<int>(fastest.size()) ? fastest : std::vector<int>();
}

}  // namespace

ThreadPool::ThreadPool(int threads, std::vector<int> cpus) : threads_(threads) {
  if (threads < 0 || threads > kMaxThreads)
    throw InvalidArgument(message("threads must be 0 (automatic) to ", kMaxThreads, ", got ", threads));
  if (threads_ == 0) threads_ = cpus.empty() ? default_thread_count() : static_cast<int>(cpus.size());
  cpus_ = choose_cpus(threads_, std::move(cpus));
  start_workers();
}

// Throws std::system_error if the system gives no more threads; there are none then.
void ThreadPool::start_workers() {
  stop_.store(false);
  generation_.store(0);  // what a worker takes as the last loop it has seen
  try {
    for (int worker = 1; worker < threads_; ++worker) workers_.emplace_back([this, worker] { worker_loop(worker); });
  } catch (...) {
    stop_workers();
    throw;
  }
}

// In the child of a fork, where there are no workers and whoever held a lock or waited is gone.
void ThreadPool::forget_workers() {
  abandon(workers_);
  abandon(caller_mutex_);
  abandon(error_mutex_);
  abandon(sleep_mutex_);
  abandon(wake_);
  sleepers_.store(0);
}

ThreadPool::~ThreadPool() { stop_workers(); }

void ThreadPool::stop_workers() {
  {
    std::lock_guard<std::mutex> lock(sleep_mutex_);
    stop_.store(true);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void ThreadPool::run(size_t count, Invoke invoke, void* context) {
  if (count == 0) return;
  std::lock_guard<std::mutex> one_loop(caller_mutex_);
  if (threads_ == 1 || count == 1) {
    for (size_t item = 0; item < count; ++item) invoke(context, item, 0);
    return;
  }
  if (workers_.empty()) start_workers();
  invoke_ = invoke;
  context_ = context;
  count_ = count;
  error_ = nullptr;
  next_.store(0, std::memory_order_relaxed);
  running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1);  // sequentially consistent with sleepers_: no wake-up is lost
  if (sleepers_.load() > 0) {
    std::lock_guard<std::mutex> lock(sleep_mutex_);
    wake_.notify_all();
  }
  take_items(0);
  const auto finished = [&] { return running_.load(std::memory_order_acquire) == 0; };
  if (!spin_until(finished))
    while (!finished()) std::this_thread::yield();
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::take_items(int worker) {
  try {
    for (size_t item; (item = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) invoke_(context_, item, worker);
  } catch (...) {
    next_.store(count_, std::memory_order_relaxed);
    std::lock_guard<std::mutex> lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

bool ThreadPool::wait_for_job(unsigned seen) {
  const auto called = [&] {
    return stop_.load(std::memory_order_relaxed) || generation_.load(std::memory_order_acquire) != seen;
  };
  if (spin_until(called)) return !stop_.load();
  std::unique_lock<std::mutex> lock(sleep_mutex_);
  sleepers_.fetch_add(1);
  wake_.wait(lock, [&] { return stop_.load() || generation_.load() != seen; });
  sleepers_.fetch_sub(1);
  return !stop_.load();
}

void ThreadPool::worker_loop(int worker) {
  bind_to(cpus_);
  for (unsigned seen = 0; wait_for_job(seen);) {
    seen = generation_.load(std::memory_order_acquire);
    take_items(worker);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

ThreadPool::CallerPin::CallerPin(const ThreadPool& pool) {
  if (pool.cpus().empty()) return;
  former_ = allowed_cpus();
  bind_to(pool.cpus());
}

ThreadPool::CallerPin::~CallerPin() { bind_to(former_); }

}  // namespace intattention
