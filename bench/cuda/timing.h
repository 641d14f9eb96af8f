// Device time of repeated work, and the two ceilings that everything is held against.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "device_buffer.h"

namespace intattention::bench {

using cuda::check;
using cuda::DeviceBuffer;

struct Times {
  double median, p95;  // seconds of one
};

inline Times summary(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds[std::min(seconds.size() - 1, seconds.size() * 95 / 100)]};
}

// work(i) for i = 0 .. inner-1 between two events on `stream`, `rounds` times after a warm-up; seconds per work.
template <typename Work>
Times time_device(cudaStream_t stream, int rounds, int inner, const Work& work) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<double> seconds;
  int index = 0;
  for (int round = -2; round < rounds; ++round) {
    check(cudaEventRecord(begin, stream), "event");
    for (int i = 0; i < inner; ++i) work(index++);
    check(cudaEventRecord(end, stream), "event");
    check(cudaEventSynchronize(end), "event");
    float ms;
    check(cudaEventElapsedTime(&ms, begin, end), "event");
    if (round >= 0) seconds.push_back(ms * 1e-3 / inner);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return summary(seconds);
}

// Bytes per second, read only; and read plus written.
double read_bandwidth(cudaStream_t stream);
double copy_bandwidth(cudaStream_t stream);

// Fills memory with random 16-bit words whose second highest bit is 0: any f16 among them is finite.
void fill_random(void* memory, size_t bytes, uint32_t seed);

}  // namespace intattention::bench
