#include "timing.h"

namespace intattention::bench {
namespace {

constexpr size_t kBytes = size_t{4} << 30;
constexpr uint32_t kThreads = 512;

__global__ void fill_kernel(uint32_t* words, size_t n, uint32_t seed) {
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < n;
       i += gridDim.x * static_cast<size_t>(blockDim.x)) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + seed;
    x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu, x ^= x >> 16;
    words[i] = x & 0xbfffbfffu;
  }
}

__global__ void __launch_bounds__(kThreads) read_kernel(const uint4* data, size_t n, uint32_t* out) {
  constexpr int kUnroll = 8;
  uint32_t sum = 0;
  const size_t stride = gridDim.x * static_cast<size_t>(kThreads);
  for (size_t i = blockIdx.x * static_cast<size_t>(kThreads) + threadIdx.x; i < n; i += kUnroll * stride) {
    uint4 v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) v[u] = i + u * stride < n ? __ldcs(data + i + u * stride) : uint4{};
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) sum += v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  if (sum == 0x12345678u) *out = sum;  // keeps the loads
}

uint32_t multiprocessors() {
  int id, count;
  check(cudaGetDevice(&id), "device");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, id), "device");
  return static_cast<uint32_t>(count);
}

}  // namespace

void fill_random(void* memory, size_t bytes, uint32_t seed) {
  fill_kernel<<<1024, 256>>>(static_cast<uint32_t*>(memory), bytes / 4, seed);
  cuda::check_launch("fill");
  check(cudaDeviceSynchronize(), "fill");
}

// The best of several grids: what a kernel that does nothing else can reach.
double read_bandwidth(cudaStream_t stream) {
  const DeviceBuffer data(kBytes), out(4);
  fill_random(data.as<void>(), kBytes, 1);
  double best = 0.0;
  for (uint32_t blocks : {1u, 2u, 4u, 8u, 16u})
    best = std::max(best, kBytes / time_device(stream, 5, 2, [&](int) {
                                     read_kernel<<<multiprocessors() * blocks, kThreads, 0, stream>>>(
                                         data.as<uint4>(), kBytes / 16, out.as<uint32_t>());
                                     cuda::check_launch("read");
                                   }).median);
  return best;
}

double copy_bandwidth(cudaStream_t stream) {
  const DeviceBuffer from(kBytes), to(kBytes);
  fill_random(from.as<void>(), kBytes, 2);
  return 2.0 * kBytes /
         time_device(stream, 5, 2, [&](int) {
           check(cudaMemcpyAsync(to.as<void>(), from.as<void>(), kBytes, cudaMemcpyDeviceToDevice, stream), "copy");
         }).median;
}

}  // namespace intattention::bench
