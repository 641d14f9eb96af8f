// The pool runs every item once, on any number of threads, hands exceptions to the caller and survives them.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "cpu_features.h"
#include "error.h"
#include "thread_pool.h"

namespace intattention {
namespace {

TEST(ThreadPool, RunsEveryItemOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads, {});
    ASSERT_EQ(pool.threads(), threads);
    for (size_t count : {0u, 1u, 2u, 7u, 1000u}) {
      std::vector<std::atomic<int>> seen(count);
      pool.parallel_for(count, [&](size_t item, int worker) {
        EXPECT_LT(worker, threads);
        seen[item].fetch_add(1);
      });
      for (const auto& times : seen) EXPECT_EQ(times.load(), 1);
    }
  }
}

TEST(ThreadPool, ManyShortLoopsAndSleepsInBetween) {
  ThreadPool pool(3, {});
  std::atomic<size_t> total{0};
  for (int loop = 0; loop < 2000; ++loop) {
    pool.parallel_for(5, [&](size_t item, int) { total.fetch_add(item); });
    if (loop % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));  // workers go to sleep
  }
  EXPECT_EQ(total.load(), 2000u * 10u);
}

TEST(ThreadPool, RethrowsAndStaysUsable) {
  ThreadPool pool(2, {});
  for (int attempt = 0; attempt < 3; ++attempt) {
    EXPECT_THROW(pool.parallel_for(100,
                                   [](size_t item, int) {
                                     if (item == 41) throw NumericError("item 41");
                                   }),
                 NumericError);
    std::atomic<int> done{0};
    pool.parallel_for(10, [&](size_t, int) { done.fetch_add(1); });
    EXPECT_EQ(done.load(), 10);
  }
}

TEST(ThreadPool, ConcurrentCallersTakeTurns) {
  ThreadPool pool(2, {});
  std::atomic<size_t> total{0};
  const auto caller = [&] {
    for (int loop = 0; loop < 200; ++loop) pool.parallel_for(4, [&](size_t, int) { total.fetch_add(1); });
  };
  std::thread other(caller);
  caller();
  other.join();
  EXPECT_EQ(total.load(), 2u * 200u * 4u);
}

TEST(ThreadPool, RefusesBadArguments) {
  EXPECT_THROW(ThreadPool(-1, {}), InvalidArgument);
  EXPECT_THROW(ThreadPool(100000, {}), InvalidArgument);
  EXPECT_THROW(ThreadPool(1, {1 << 20}), InvalidArgument);
}

TEST(ThreadPool, CallerPinRestoresTheAffinity) {
  const std::vector<int> before = allowed_cpus();
  if (before.empty()) GTEST_SKIP() << "this system does not report affinity";
  ThreadPool pool(1, {before.front()});
  {
    const ThreadPool::CallerPin pin(pool);
    EXPECT_EQ(allowed_cpus(), std::vector<int>{before.front()});
  }
  EXPECT_EQ(allowed_cpus(), before);
}

}  // namespace
}  // namespace intattention
