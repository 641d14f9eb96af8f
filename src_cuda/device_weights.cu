#include <algorithm>

#include "device_weights.h"

namespace intattention::cuda {
namespace {

// One matrix in the CPU's layout, already on the device, and where its rows go.
struct Source {
  const uint8_t* data;
  uint32_t rows, first_row;  // first_row: of the destination
  uint32_t tile_step;        // 1, or 2 where two matrices alternate
};

// One thread per (row, group): 16 (w8: 32) bytes of quants and the scales.
__global__ void repack(Source in, WeightView out, uint8_t* data) {
  const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32_t row = index / out.groups, group = index % out.groups;
  if (row >= in.rows) return;
  const bool w8 = out.format == WeightFormat::kW8G32, min = out.format == WeightFormat::kW4G32A;
  const size_t group_bytes = w8 ? 272 : min ? 160 : 144;
  const uint8_t* from = in.data + (static_cast<size_t>(row / kTileRows) * out.groups + group) * group_bytes;
  const uint32_t r8 = row % kTileRows;
  const uint32_t target = in.tile_step == 1
                              ? in.first_row + row
                              : (row / kRowTile * in.tile_step) * kRowTile + in.first_row + row % kRowTile;
  const uint32_t r = target % kRowTile, g = group % kChunkGroups;
  const size_t bytes = chunk_bytes(out.format), quants = quant_bytes(out.format);
  uint8_t* chunk = data + (static_cast<size_t>(target / kRowTile) * out.chunks + group / kChunkGroups) * bytes;
  const uint32_t* source = reinterpret_cast<const uint32_t*>(from + (min ? 32 : 16));
  for (uint32_t word = 0; word < (w8 ? 8 : 4); ++word)
    reinterpret_cast<uint32_t*>(chunk + g * quants + word / 4 * 512 + r * 16)[word % 4] =
        source[word * kTileRows + r8] ^ (w8 ? 0u : 0x88888888u);
  uint16_t* scales = reinterpret_cast<uint16_t*>(chunk + kChunkGroups * quants) + r * kChunkGroups + g;
  scales[0] = reinterpret_cast<const uint16_t*>(from)[r8];
  if (min) scales[kRowTile * kChunkGroups] = reinterpret_cast<const uint16_t*>(from)[kTileRows + r8];
}

}  // namespace

DeviceWeights::DeviceWeights(const std::vector<LinearW4A8::Part>& parts, bool interleave) {
  size_t rows = 0;
  for (const auto& part : parts) rows += part->out_features;
  const size_t k = parts.front()->in_features, groups = k / kGroup;
  const size_t chunks = (groups + kChunkGroups - 1) / kChunkGroups, tiles = (rows + kRowTile - 1) / kRowTile;
  constexpr size_t kMaxIndex = size_t{1} << 32;
  if (tiles * kRowTile * chunks * kChunkGroups >= kMaxIndex)
    throw InvalidArgument(message("cuda: a matrix of (", rows, ", ", k, ") is too large for the device layout"));
  const WeightFormat format = parts.front()->format;
  data_ = DeviceBuffer(tiles * chunks * chunk_bytes(format));
  view_ = {data_.as<uint8_t>(),           format,
           static_cast<uint32_t>(rows),   static_cast<uint32_t>(k),
           static_cast<uint32_t>(groups), static_cast<uint32_t>(chunks),
           static_cast<uint32_t>(tiles)};
  uint32_t first = 0;
  for (const auto& part : parts) {
    const DeviceBuffer staged(part->data.data(), part->data.size());
    const uint32_t own = static_cast<uint32_t>(part->out_features);
    constexpr uint32_t kThreads = 256;
    const size_t items = static_cast<size_t>(own) * groups;
    repack<<<static_cast<uint32_t>((items + kThreads - 1) / kThreads), kThreads>>>(
        {staged.as<uint8_t>(), own, first, interleave ? 2u : 1u}, view_, data_.as<uint8_t>());
    check_launch("repack");
    check(cudaDeviceSynchronize(), "repack");
    first += interleave ? kRowTile : own;
  }
}

DeviceLinear::DeviceLinear(const LinearW4A8& linear)
    : in_features(static_cast<uint32_t>(linear.in_features())),
      out_features(static_cast<uint32_t>(linear.out_features())) {
  uint32_t column = 0;
  for (size_t first = 0; first < linear.parts().size();) {
    std::vector<LinearW4A8::Part> run;
    uint32_t rows = 0;
    for (; first < linear.parts().size(); ++first) {
      const auto& part = linear.parts()[first];
      if (!run.empty() && part->format != run.front()->format) break;
      run.push_back(part);
      rows += static_cast<uint32_t>(part->out_features);
    }
    segments.push_back({DeviceWeights(run, false), column});
    column += rows;
  }
}

size_t DeviceLinear::nbytes() const {
  size_t bytes = 0;
  for (const Segment& segment : segments) bytes += segment.weights.nbytes();
  return bytes;
}

DeviceGateUp::DeviceGateUp(const LinearW4A8& linear) {
  const auto& parts = linear.parts();
  interleaved = parts.size() == 2 && parts[0]->format == parts[1]->format && parts[0]->out_features % kRowTile == 0;
  if (!interleaved) {
    static_cast<DeviceLinear&>(*this) = DeviceLinear(linear);
    return;
  }
  in_features = static_cast<uint32_t>(linear.in_features());
  out_features = static_cast<uint32_t>(linear.out_features());
  segments.push_back({DeviceWeights(parts, true), 0});
}

}  // namespace intattention::cuda
