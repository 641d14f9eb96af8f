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

// n / d for n below 2^31, as a multiplication.
struct Divisor {
  uint32_t d, factor, shift;

  explicit Divisor(uint32_t divisor = 1) : d(divisor), shift(31) {
    while (uint64_t{1} << (shift - 31) < d) ++shift;
    factor = static_cast<uint32_t>(((uint64_t{1} << shift) + d - 1) / d);
  }
  __device__ uint32_t quotient(uint32_t n) const {
    return static_cast<uint32_t>(static_cast<uint64_t>(n) * factor >> shift);
  }
  __device__ uint32_t remainder(uint32_t n) const { return n - quotient(n) * d; }
};

// The line, and how much of it everyone takes: `longer` blocks have one chunk more.
struct Line {
  Divisor unit, tile;  // chunks of each
  uint32_t blocks, each, longer;

  Line() = default;
  // Not more blocks than units.
  Line(uint32_t units, uint32_t chunks_per_tile, uint32_t tiles_per_unit, uint32_t block_count)
      : unit(chunks_per_tile * tiles_per_unit),
        tile(chunks_per_tile),
        blocks(block_count),
        each(units * unit.d / blocks),
        longer(units * unit.d % blocks) {}
};

// What a block takes.
struct Share {
  enum Piece { kHead, kWhole, kTail, kPieces };
  uint32_t begin, whole, head, end;  // whole units lie between whole and head

  __device__ explicit Share(const Line& line) {
    begin = blockIdx.x * line.each + min(blockIdx.x, line.longer);
    end = begin + line.each + (blockIdx.x < line.longer ? 1 : 0);
    whole = line.unit.quotient(begin + line.unit.d - 1) * line.unit.d;  // at most end
    head = line.unit.quotient(end) * line.unit.d;
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
