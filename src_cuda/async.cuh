// Copies from global to shared memory that run while the thread goes on, and barriers in shared memory.
#pragma once

#include <cstdint>

namespace intattention::cuda {

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// 4 or 8 bytes by way of L1, 16 past it; zeros unless `there`.
template <int kBytes>
__device__ inline void copy_async(void* shared, const void* global, bool there) {
  const int bytes = there ? kBytes : 0;
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)), "l"(global),
                 "n"(kBytes), "r"(bytes)
                 : "memory");
}

// What is read once should leave L2 before what is read again.
__device__ inline uint64_t read_once_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
template <int kBytes>
__device__ inline void copy_async_once(void* shared, const void* global, uint64_t policy) {
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                 "l"(global), "l"(policy)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], %2, %3;" ::"r"(shared_address(shared)),
                 "l"(global), "n"(kBytes), "l"(policy)
                 : "memory");
}

__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all of the thread's groups but the last N.
template <int N>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// A barrier that completes after `count` arrivals, again and again; `turn` is how often it had completed before.
struct SharedBarrier {
  uint64_t state;

  __device__ void init(uint32_t count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&state)), "r"(count) : "memory");
  }
  __device__ void arrive() {
    asm volatile("{\n .reg .b64 token;\n mbarrier.arrive.shared.b64 token, [%0];\n}" ::"r"(shared_address(&state))
                 : "memory");
  }
  __device__ void wait(uint32_t turn) {
    uint32_t done;
    do {
      asm volatile("{\n .reg .pred p;\n mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n selp.b32 %0, 1, 0, p;\n}"
                   : "=r"(done)
                   : "r"(shared_address(&state)), "r"(turn & 1)
                   : "memory");
    } while (done == 0);
  }
};

}  // namespace intattention::cuda
