// Launches. On sm_90 a kernel may start while the one before it in the stream still runs (programmatic dependent
// launch): what does not depend on it, weights above all, is fetched meanwhile. So every kernel of a step calls
// wait_for_previous() before it touches anything that another kernel writes or reads.
#pragma once

#include "cuda_error.h"

namespace intattention::cuda {

#ifdef __CUDACC__
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may be brought in as soon as all blocks have come here.
__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
#endif

// Whether the current device has programmatic dependent launch, and it is allowed (for comparison it can be forbidden,
// before the first graph is captured).
bool overlaps_launches();
void allow_overlap(bool allowed);

struct LaunchSize {
  unsigned grid_x, grid_y, threads;
  size_t shared = 0;
};

// A multiprocessor changes how much of its memory is shared only when it is idle, so all kernels ask for the most.
void prefer_shared_memory(const void* kernel);

// Launches kernel<<<size, stream>>>(args...) and checks it.
template <typename... Params, typename... Args>
void launch(const char* name, void (*kernel)(Params...), const LaunchSize& size, cudaStream_t stream, Args... args) {
  prefer_shared_memory(reinterpret_cast<const void*>(kernel));
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(size.grid_x, size.grid_y);
  config.blockDim = dim3(size.threads);
  config.dynamicSmemBytes = size.shared;
  config.stream = stream;
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = overlaps_launches() ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), name);
}

}  // namespace intattention::cuda
