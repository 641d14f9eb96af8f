// Every CUDA call and every launch is checked: a kernel that could not run must not pass for one that computed.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>

#include "error.h"

namespace intattention::cuda {

struct CudaError : std::runtime_error {  // RuntimeError
  using std::runtime_error::runtime_error;
};

// Throws CudaError with the name of what failed; std::bad_alloc if the device has no memory left.
void check(cudaError_t status, const char* what);

// After every launch: a wrong architecture or configuration shows up here and not at the next synchronisation.
inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

}  // namespace intattention::cuda
