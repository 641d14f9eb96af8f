// Whether the GPU can run these kernels, found out by running one.
#pragma once

#include <string>

namespace intattention::cuda {

// Empty if a kernel of this build ran on the current device, else why not.
std::string why_unavailable();

struct DeviceFacts {
  std::string name;
  int major, minor, multiprocessors, runtime, driver;
  size_t memory_bytes, free_bytes, l2_bytes;
};
DeviceFacts device_facts();  // throws CudaError

}  // namespace intattention::cuda
