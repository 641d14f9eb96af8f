// How the blocks of a GEMV divide a matrix: what a block takes, in which order, and what it hands to the next.
//
// A unit is a row tile, or a gate and an up tile. Most units are dealt in turns, so that neighbouring blocks read
// neighbouring memory at any time: with a stretch of its own for every block some took 1.5 times as long as others.
// The last ones (fewer than two for each block) lie in a line, and every block takes an equal piece of it, in chunks,
// which can end within a unit. Rows are added up in order of k, so the block that has the rest of the unit goes on with
// the sums of the one before it. It does that last, and the block before does its part first: nobody waits.
//
//   unit      |  0  |  1  |  2  |  3  |  4  |  5  |       6       |       7       |       8       |       9       |
//   block     |  0  |  1  |  2  |  0  |  1  |  2  |          0          |          1          |         2         |
//   order                                             3       1       4     1 (...)    head, dealt, whole units, tail
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
  __host__ __device__ uint32_t quotient(uint32_t n) const {
    return static_cast<uint32_t>(static_cast<uint64_t>(n) * factor >> shift);
  }
  __host__ __device__ uint32_t remainder(uint32_t n) const { return n - quotient(n) * d; }
};

// What is the same for all blocks. `longer` of them have one chunk more of the line.
struct Line {
  Divisor unit, tile;                           // chunks of each
  uint32_t blocks, dealt, begin, each, longer;  // dealt: units to each block; begin: chunk at which the line begins

  Line() = default;
  // Not more blocks than units.
  Line(uint32_t units, uint32_t chunks_per_tile, uint32_t tiles_per_unit, uint32_t block_count)
      : unit(chunks_per_tile * tiles_per_unit),
        tile(chunks_per_tile),
        blocks(block_count),
        dealt(units / blocks - 1),
        begin(dealt * blocks * unit.d),
        each((units * unit.d - begin) / blocks),
        longer((units * unit.d - begin) % blocks) {}
};

// What a block takes, as pieces of consecutive chunks: the head of a unit, units dealt to it, whole units of the line,
// the tail of a unit. Chunks are counted from the matrix's first.
struct Share {
  const Line& line;
  const uint32_t block;
  uint32_t begin, whole, head, end;  // of the line; whole units lie between whole and head

  __host__ __device__ Share(const Line& own, uint32_t index) : line(own), block(index) {
    begin = line.begin + block * line.each + (block < line.longer ? block : line.longer);
    end = begin + line.each + (block < line.longer ? 1 : 0);
    whole = line.unit.quotient(begin + line.unit.d - 1) * line.unit.d;  // at most end
    head = line.unit.quotient(end) * line.unit.d;
  }
  __host__ __device__ uint32_t count() const { return line.dealt * line.unit.d + end - begin; }

  __host__ __device__ uint32_t pieces() const { return line.dealt + 3; }
  __host__ __device__ bool is_head(uint32_t piece) const { return piece == 0; }
  __host__ __device__ bool is_tail(uint32_t piece) const { return piece == line.dealt + 2; }
  __host__ __device__ uint32_t dealt_unit(uint32_t i) const { return i * line.blocks + block; }
  __host__ __device__ uint32_t first(uint32_t piece) const {
    return is_head(piece)        ? head
           : piece <= line.dealt ? dealt_unit(piece - 1) * line.unit.d
           : is_tail(piece)      ? begin
                                 : whole;
  }
  __host__ __device__ uint32_t count(uint32_t piece) const {
    return is_head(piece)        ? end - head
           : piece <= line.dealt ? line.unit.d
           : is_tail(piece)      ? whole - begin
                                 : head - whole;
  }
  // The i-th chunk to be done.
  __host__ __device__ uint32_t chunk(uint32_t i) const {
    if (i < end - head) return head + i;
    i -= end - head;
    const uint32_t round = line.unit.quotient(i);
    if (round < line.dealt) return dealt_unit(round) * line.unit.d + line.unit.remainder(i);
    i -= line.dealt * line.unit.d;
    return i < head - whole ? whole + i : begin + (i - (head - whole));
  }

  // Units that end here, and the i-th of them.
  __host__ __device__ uint32_t ending() const {
    return line.dealt + line.unit.quotient(head - whole) + (whole > begin ? 1 : 0);
  }
  __host__ __device__ uint32_t ending_unit(uint32_t i) const {
    if (i < line.dealt) return dealt_unit(i);
    const uint32_t at = whole + (i - line.dealt) * line.unit.d;
    return line.unit.quotient(at < head ? at : begin);
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
