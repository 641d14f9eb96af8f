#include "available.h"

#include <atomic>
#include <set>
#include <utility>

#include "device_buffer.h"
#include "launch.h"

namespace intattention::cuda {
namespace {

std::atomic<bool> overlap_allowed{true};

__global__ void answer(int* out) { *out = 42; }

}  // namespace

std::string why_unavailable() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess) {
    cudaGetLastError();
    return message("no usable CUDA driver or device: ", cudaGetErrorString(status));
  }
  if (devices == 0) return "no CUDA device";
  try {
    DeviceBuffer out(sizeof(int));
    answer<<<1, 1>>>(out.as<int>());
    check_launch("the test kernel");
    int value = 0;
    out.download(&value, 1);
    return value == 42 ? "" : message("the test kernel wrote ", value, " instead of 42");
  } catch (const std::exception& error) {
    return error.what();
  }
}

DeviceFacts device_facts() {
  int id, runtime, driver;
  cudaDeviceProp p;
  size_t free, total;
  check(cudaGetDevice(&id), "cudaGetDevice");
  check(cudaGetDeviceProperties(&p, id), "cudaGetDeviceProperties");
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  return {p.name,
          p.major,
          p.minor,
          p.multiProcessorCount,
          runtime,
          driver,
          total,
          free,
          static_cast<size_t>(p.l2CacheSize)};
}

bool overlaps_launches() {
  thread_local int known_for = -1;
  thread_local bool overlaps = false;
  int id, major;
  check(cudaGetDevice(&id), "cudaGetDevice");
  if (id == known_for) return overlaps && overlap_allowed.load();
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, id), "compute capability");
  overlaps = major >= 9;
  known_for = id;
  return overlaps && overlap_allowed.load();
}

void prefer_shared_memory(const void* kernel) {
  thread_local std::set<std::pair<int, const void*>> done;
  int id;
  check(cudaGetDevice(&id), "cudaGetDevice");
  if (!done.insert({id, kernel}).second) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
        "carveout");
}

void allow_overlap(bool allowed) { overlap_allowed.store(allowed); }

}  // namespace intattention::cuda
