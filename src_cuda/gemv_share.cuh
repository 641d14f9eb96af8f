// How the blocks of a GEMV divide a matrix: by chunks, evenly to one, and what a block hands to the next.
//
// The chunks of all units lie in a line, a unit (a row tile, or a gate and an up tile) after the other, and every block
// takes an equal piece of the line, which can end within a unit. Rows are added up in order of k, so the block that has
// the rest of the unit goes on with the sums of the one before it. It does that last, and the block before does its
// part first: nobody waits.
//
//   unit      |       0       |       1       |       2       |       3       |
//   block     |         0         |         1         |          2          |
//   order     |       2       | 1 |     2     |  ...      head first, whole units, tail last
#pragma once

#include "kernels.h"

namespace intattention::cuda {

struct Share {
  enum Piece { kHead, kWhole, kTail, kPieces };
  uint32_t begin, whole, head, end;  // whole units lie between whole and head

  __device__ Share(uint32_t units, uint32_t per_unit) {
    const uint64_t total = static_cast<uint64_t>(units) * per_unit;
    begin = static_cast<uint32_t>(total * blockIdx.x / gridDim.x);
    end = static_cast<uint32_t>(total * (blockIdx.x + 1) / gridDim.x);
    whole = (begin + per_unit - 1) / per_unit * per_unit;  // at most end: the grid has no more blocks than units
    head = end / per_unit * per_unit;
  }
  __device__ uint32_t count() const { return end - begin; }
  __device__ uint32_t first(int piece) const { return piece == kHead ? head : piece == kWhole ? whole : begin; }
  __device__ uint32_t count(int piece) const {
    return piece == kHead ? end - head : piece == kWhole ? head - whole : whole - begin;
  }
  // Chunk of the line that is the i-th to be done.
  __device__ uint32_t chunk(uint32_t i) const {
    const uint32_t in_head = end - head, in_whole = head - whole;
    return i < in_head ? head + i : i < in_head + in_whole ? whole + (i - in_head) : begin + (i - in_head - in_whole);
  }
};

// Sums on their way to the next block: a float and the mark that it is there, in one word. The reader takes the mark
// off, so that all are off when the kernel ends.
struct Sums {
  uint64_t* word;

  __device__ void give(uint32_t i, float value) const {
    const uint64_t w = uint64_t{1} << 32 | __float_as_uint(value);
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word + i), "l"(w) : "memory");
  }
  __device__ float take(uint32_t i) const {
    uint64_t w;
    do {
      asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(w) : "l"(word + i) : "memory");
    } while (w == 0);
    word[i] = 0;
    return __uint_as_float(static_cast<uint32_t>(w));
  }
};

}  // namespace intattention::cuda
