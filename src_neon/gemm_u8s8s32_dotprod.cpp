// C (s32) = A (u8) x B^T (s8, r8k4) with SDOT by element; USDOT needs FEAT_I8MM, which A76 and A78AE lack.
//
// Work goes by groups of up to 32 rows and 256 k. A is first packed per block of up to 8 rows, in chunks of
// 16 k, and each chunk gets one of three treatments:
//   all zero       left out: neither packed nor multiplied (2 to 10 % of the chunks in SmolLM2 at 8K)
//   all below 128  its bytes are s8 as they are
//   otherwise      the top bit is flipped (a ^ 0x80 = a - 128), and 128 * colsum(B, chunk) is added back:
//                  the sum over these chunks is the start value of the accumulators. A chunk's 8 column sums
//                  cost 8 SDOT per tile for all rows of the group, and one ADD.8H for each block that uses
//                  them; |sum over 256 k| <= 2^15, and -2^15 fits s16.
// Exact for every u8 and s8.
//
// Tile: 8 rows (1 to 7 at the end) x 8 columns; one step is one chunk:
//
//   packed A of a block, a chunk = 128 bytes      B, step of 4 k:  b0 = columns 0..3   b1 = columns 4..7
//   a0 |k0-3|k4-7|k8-11|k12-15|                                    acc[0][0]           acc[0][1]
//    ...                                                            ...                 ...
//   a7 |    |    |     |      |                                    acc[7][0]           acc[7][1]
//
//   registers: 16 accumulators, 8 of A, 2 to 8 of B: 26 to 32.
//
// Bound on Cortex-A76: 64 SDOT at 0.5 cycle = 32 cycles for 1024 MAC; 8 LDP hide under them. Packing is about
// 12 cycles per 128 bytes of A, once for all n. Worst case, every chunk flipped: 4.5 cycles per chunk and tile
// for the column sums, over 4 blocks, plus 0.5: 1.6 in 32.
//
// Rejected:
// - EOR in the inner loop (8 per 64 SDOT: 36 cycles) and 128 * colsum(B) over all k as start value, which
//   a left-out chunk would have to be taken out of again.
// - UDOT on B ^ 0x80 minus 128 * rowsum(A): B's EOR comes back for every block of 8 rows, 8 per 64 dots.
#include <cstring>

#include "kernels.h"
#include "neon_inline.h"

namespace intattention {
namespace {

constexpr size_t kChunk = 16, kDepth = 256, kBlockRows = 8, kGroupRows = 32;
constexpr size_t kChunkBytesOfB = kChunk * kTileRows;

struct RowBlock {
  size_t rows, count, flipped_count;
  uint16_t chunk[kDepth / kChunk];    // the chunks that are not all zero
  uint16_t flipped[kDepth / kChunk];  // those with a byte of 128 or more
  int8_t a[kDepth * kBlockRows];      // [count][rows][16]
};

// OR of the rows, as a tree: the chain from here to the stores is what a chunk waits for.
template <int kRows>
inline uint8x16_t any_of(const uint8x16_t row[kRows]) {
  if constexpr (kRows == 1) {
    return row[0];
  } else {
    return vorrq_u8(any_of<kRows / 2>(row), any_of<kRows - kRows / 2>(row + kRows / 2));
  }
}

template <int kRows>
void pack_block(size_t depth, const uint8_t* a, size_t lda, RowBlock* block) {
  int8_t* out = block->a;
  uint16_t* chunk = block->chunk;
  uint16_t* flipped = block->flipped;
  // Every chunk is written and then kept or not: no branch that the data decide.
  const auto pack = [&](size_t index, const uint8x16_t row[kRows]) {
    const uint8_t largest = vmaxvq_u8(any_of<kRows>(row));  // zero, and its top bit, as in the largest byte
    const uint8x16_t flip = vandq_u8(vdupq_n_u8(largest), vdupq_n_u8(0x80));
    uint8x16_t packed[kRows];
    for (int r = 0; r < kRows; ++r) packed[r] = veorq_u8(row[r], flip);
    for (int r = 0; r < kRows; ++r) vst1q_s8(out + r * kChunk, vreinterpretq_s8_u8(packed[r]));
    *chunk = *flipped = static_cast<uint16_t>(index);
    const size_t keep = (largest + 255u) >> 8;  // 0 or 1; a comparison becomes a branch in GCC
    chunk += keep;
    out += keep * kChunk * kRows;
    flipped += largest >> 7;
  };
  uint8x16_t row[kRows];
  size_t i = 0;
  for (; i + kChunk <= depth; i += kChunk) {
    for (int r = 0; r < kRows; ++r) row[r] = vld1q_u8(a + r * lda + i);
    pack(i / kChunk, row);
  }
  if (i < depth) {
    for (int r = 0; r < kRows; ++r) {
      uint8_t padded[kChunk] = {};
      std::memcpy(padded, a + r * lda + i, depth - i);
      row[r] = vld1q_u8(padded);
    }
    pack(i / kChunk, row);
  }
  block->rows = kRows;
  block->count = static_cast<size_t>(chunk - block->chunk);
  block->flipped_count = static_cast<size_t>(flipped - block->flipped);
}

// Sums over a chunk's 16 k of each of the 8 columns of a tile.
inline int16x8_t column_sums(const int8_t* b) {
  const int8x16_t ones = vdupq_n_s8(1);
  int32x4_t sum0 = vdupq_n_s32(0), sum1 = vdupq_n_s32(0);
  for (size_t i = 0; i < kChunkBytesOfB; i += 32) {
    sum0 = vdotq_s32(sum0, vld1q_s8(b + i), ones);
    sum1 = vdotq_s32(sum1, vld1q_s8(b + i + 16), ones);
  }
  return vcombine_s16(vmovn_s32(sum0), vmovn_s32(sum1));
}

template <int kLane, int kRows>
inline void step4(const int8_t* b, const int8x16_t a[kRows], int32x4_t acc[kRows][2]) {
  const int8x16_t b0 = vld1q_s8(b), b1 = vld1q_s8(b + 16);
  for (int r = 0; r < kRows; ++r) {
    acc[r][0] = vdotq_laneq_s32(acc[r][0], b0, a[r], kLane);
    acc[r][1] = vdotq_laneq_s32(acc[r][1], b1, a[r], kLane);
  }
}

// `sums`: column_sums of the tile, by chunk; `add`: C is added to, not set.
template <int kRows>
void block_by_tile(const RowBlock& block, const int8_t* b, const int16x8_t* sums, int32_t* c, size_t ldc, bool add) {
  int16x8_t offset = vdupq_n_s16(0);
  for (size_t i = 0; i < block.flipped_count; ++i) offset = vaddq_s16(offset, sums[block.flipped[i]]);
  const int32x4_t start0 = vshll_n_s16(vget_low_s16(offset), 7), start1 = vshll_high_n_s16(offset, 7);
  int32x4_t acc[kRows][2];
  int8x16_t ar[kRows];
  for (int r = 0; r < kRows; ++r) {
    acc[r][0] = add ? vaddq_s32(start0, vld1q_s32(c + r * ldc)) : start0;
    acc[r][1] = add ? vaddq_s32(start1, vld1q_s32(c + r * ldc + 4)) : start1;
  }
  const int8_t* a = block.a;
  const uint16_t* const end = block.chunk + block.count;
  for (const uint16_t* chunk = block.chunk; chunk != end; ++chunk, a += kChunk * kRows) {
    const int8_t* tile = b + *chunk * kChunkBytesOfB;
    for (int r = 0; r < kRows; ++r) ar[r] = vld1q_s8(a + r * kChunk);
    step4<0, kRows>(tile, ar, acc);
    step4<1, kRows>(tile + 32, ar, acc);
    step4<2, kRows>(tile + 64, ar, acc);
    step4<3, kRows>(tile + 96, ar, acc);
  }
  for (int r = 0; r < kRows; ++r) {
    vst1q_s32(c + r * ldc, acc[r][0]);
    vst1q_s32(c + r * ldc + 4, acc[r][1]);
  }
}

using PackBlock = void (*)(size_t, const uint8_t*, size_t, RowBlock*);
using BlockByTile = void (*)(const RowBlock&, const int8_t*, const int16x8_t*, int32_t*, size_t, bool);
constexpr PackBlock kPack[] = {pack_block<1>, pack_block<2>, pack_block<3>, pack_block<4>,
                               pack_block<5>, pack_block<6>, pack_block<7>, pack_block<8>};
constexpr BlockByTile kMultiply[] = {block_by_tile<1>, block_by_tile<2>, block_by_tile<3>, block_by_tile<4>,
                                     block_by_tile<5>, block_by_tile<6>, block_by_tile<7>, block_by_tile<8>};

// Up to 32 rows x 256 k.
void group(size_t m, size_t n, size_t depth, const uint8_t* a, size_t lda, const int8_t* b, size_t b_stride, int32_t* c,
           size_t ldc, bool add) {
  RowBlock blocks[kGroupRows / kBlockRows];
  uint32_t flipped = 0;  // bit per chunk
  for (size_t row = 0; row < m; row += kBlockRows) {
    RowBlock& block = blocks[row / kBlockRows];
    kPack[(m - row < kBlockRows ? m - row : kBlockRows) - 1](depth, a + row * lda, lda, &block);
    for (size_t i = 0; i < block.flipped_count; ++i) flipped |= 1u << block.flipped[i];
  }
  for (size_t j = 0; j < n; j += kTileRows, b += b_stride, c += kTileRows) {
    const int8_t* tile = b;
    int8_t padded[kDepth * kTileRows];
    if (depth % kChunk != 0) {  // the last chunk's missing k are zero, on both sides
      std::memcpy(padded, b, depth * kTileRows);
      std::memset(padded + depth * kTileRows, 0, sizeof padded - depth * kTileRows);
      tile = padded;
    }
    int16x8_t sums[kDepth / kChunk];
    for (uint32_t left = flipped, chunk = 0; left != 0; left >>= 1, ++chunk) {
      if (left & 1) sums[chunk] = column_sums(tile + chunk * kChunkBytesOfB);
    }
    for (size_t row = 0; row < m; row += kBlockRows) {
      const RowBlock& block = blocks[row / kBlockRows];
      kMultiply[block.rows - 1](block, tile, sums, c + row * ldc, ldc, add);
    }
  }
}

}  // namespace

void gemm_u8s8s32_dotprod(size_t m, size_t n, size_t k, const uint8_t* a, size_t lda, const int8_t* b_packed,
                          size_t b_stride, int32_t* c, size_t ldc) {
  for (size_t row = 0; row < m; row += kGroupRows) {
    const size_t rows = m - row < kGroupRows ? m - row : kGroupRows;
    size_t first = 0;
    do {
      const size_t depth = k - first < kDepth ? k - first : kDepth;
      group(rows, n, depth, a + row * lda + first, lda, b_packed + first * kTileRows, b_stride, c + row * ldc, ldc,
            first > 0);
      first += kDepth;
    } while (first < k);
  }
}

}  // namespace intattention
