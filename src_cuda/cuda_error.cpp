#include "cuda_error.h"

#include <new>

namespace intattention::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears it, unless it is one that stays
  if (status == cudaErrorMemoryAllocation) throw std::bad_alloc();
  throw CudaError(message(what, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")"));
}

}  // namespace intattention::cuda
