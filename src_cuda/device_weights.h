// Linear weights on the device: packed weights (src_core/packing.h) in another order of bytes.
//
// Row tiles of 32, one lane of a warp per row. Along k a tile is made of chunks of 4 groups, each chunk contiguous:
//
//   w4g32   | 4 groups x | 32 rows x 16 bytes |            | 32 rows x 4 d (f16) |                        2304 bytes
//   w4g32a  | 4 groups x | 32 rows x 16 bytes |            | 32 rows x 4 d       | 32 rows x 4 mn (f16) | 2560 bytes
//   w8g32   | 4 groups x | 2 halves x 32 rows x 16 bytes | | 32 rows x 4 d       |                        4352 bytes
//
// A group of a row is what one lane loads at once, and 8 rows of it are the B fragment of mma.m16n8k32: byte i of the
// 16 holds element i in the low and i + 16 in the high nibble, so word t of a row gives, shifted and masked, the lane's
// 4 + 4 elements. Nibbles are q - 8 in two's complement and stay in the upper half of their byte: v & 0xf0f0f0f0 and
// (v << 4) & 0xf0f0f0f0 are 16 * (q - 8) as signed bytes without a sign extension; the 16 goes into the activations'
// scale. Rows and groups beyond the matrix are zero.
#pragma once

#include <vector>

#include "device_buffer.h"
#include "linear.h"

namespace intattention::cuda {

constexpr uint32_t kRowTile = 32;
constexpr uint32_t kChunkGroups = 4;
constexpr uint32_t kChunkK = kChunkGroups * kGroup;

constexpr uint32_t quant_bytes(WeightFormat f) { return f == WeightFormat::kW8G32 ? 1024 : 512; }  // tile x group
constexpr uint32_t chunk_bytes(WeightFormat f) {
  return kChunkGroups * quant_bytes(f) + (f == WeightFormat::kW4G32A ? 512 : 256);
}

// What a kernel sees of a matrix.
struct WeightView {
  const uint8_t* data;
  WeightFormat format;
  uint32_t rows, k, groups, chunks, tiles;
};

class DeviceWeights {
 public:
  DeviceWeights() = default;
  // Rows of the parts one below the other; all of one format and k. `interleave`: two parts of equal size, tile i of
  // the first before tile i of the second.
  DeviceWeights(const std::vector<LinearW4A8::Part>& parts, bool interleave);

  WeightView view() const { return view_; }
  size_t nbytes() const { return data_.size(); }

 private:
  WeightView view_{};
  DeviceBuffer data_;
};

// A linear of several parts: neighbours of one format are one matrix on the device.
struct DeviceLinear {
  struct Segment {
    DeviceWeights weights;
    uint32_t column;  // of its first row in a row of the output
  };
  std::vector<Segment> segments;
  uint32_t in_features = 0, out_features = 0;

  DeviceLinear() = default;
  explicit DeviceLinear(const LinearW4A8& linear);
  size_t nbytes() const;
};

// gate_proj and up_proj: tiles of 32 alternate where both have one format, so that one block of a kernel has the gate
// and the up value of a channel. Then column (c / 32) * 64 + c % 32 of the output is gate c, 32 columns further is up
// c.
struct DeviceGateUp : DeviceLinear {
  bool interleaved = false;

  DeviceGateUp() = default;
  explicit DeviceGateUp(const LinearW4A8& linear);
};

}  // namespace intattention::cuda
