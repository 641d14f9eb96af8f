// What a producer of the GEMV does with its chunks, and nothing else: scripts/count_unpack.py reads its machine code.
#include "gemv_block.cuh"

using namespace intattention;
using namespace intattention::cuda;

extern "C" __global__ void unpack_probe(uint32_t chunks) {
  extern __shared__ __align__(16) uint8_t memory[];
  const GemvShared<WeightFormat::kW4G32, 1> s(memory, chunks, chunks, chunks);
  const uint32_t lane = threadIdx.x % kWarp;
  for (uint32_t i = threadIdx.x / kWarp; i < chunks; i += blockDim.x / kWarp)
    multiply<WeightFormat::kW4G32, 1>(ChunkRow<WeightFormat::kW4G32>(s.slots[i], lane), s, chunks, i, lane, s.terms[i]);
}
