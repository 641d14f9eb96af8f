// The decoder of src_core/decoder.h on a GPU: the same weights, the same numbers to the bit (docs/cuda.md).
#pragma once

#include <map>
#include <mutex>

#include "decoder.h"
#include "device_cache.h"

namespace intattention::cuda {

struct DeviceLayer;
struct DeviceWorkspace;

class DeviceDecoder {
 public:
  // Copies the weights to the current device; `model` is not kept. Throws InvalidArgument for a shape that the kernels
  // do not have, CudaError, std::bad_alloc.
  explicit DeviceDecoder(const Decoder& model);
  ~DeviceDecoder();

  const DecoderConfig& config() const { return config_; }
  size_t nbytes() const;
  std::unique_ptr<DeviceCache> new_cache(size_t max_len) const;

  // As Decoder::forward.
  void forward(const int32_t* ids, size_t count, DeviceCache& cache, LogitRows rows, float* logits);

  // Runs `id` and then, each time, the most probable token below `limit`; `ids` gets the `count` tokens chosen. The
  // device does not wait for the host in between. The cache grows by `count`.
  void greedy(int32_t id, size_t count, size_t limit, DeviceCache& cache, int32_t* ids);

  // Without the graph of a step every kernel is launched by itself; for comparison.
  void use_graphs(bool on) { use_graphs_ = on; }

 private:
  struct Graph;

  // The residual stream is hidden + add (add may be null); `other` is as large, for the next sum of a single token.
  struct Residual {
    float *hidden, *other;
    const float* add;
  };

  void prepare(size_t count, const DeviceCache& cache);
  void start(int32_t token, size_t position);
  void finish(size_t position, size_t count);
  Residual run_layers(uint32_t tokens, const DeviceCache& cache, uint32_t blocks);
  void run_layer(const DeviceLayer& layer, uint32_t tokens, const CacheView& cache, Residual& residual,
                 uint32_t blocks);
  void attend(const DeviceLayer& layer, uint32_t tokens, const CacheView& cache, uint32_t blocks);
  void feed_forward(const DeviceLayer& layer, uint32_t tokens, Residual& residual);
  bool norms_in_gemv(uint32_t tokens) const;
  NormedRow normed_row(Residual& residual, const DeviceBuffer& weight) const;
  void normed_rows(uint32_t tokens, Residual& residual, const DeviceBuffer& weight);
  void normed_linear(uint32_t tokens, Residual& residual, const DeviceBuffer& weight, const DeviceLinear& linear,
                     float* y);
  void linear(const DeviceLinear& linear, uint32_t tokens, const DeviceRows& x, float* y);
  void output(Residual residual, size_t first, uint32_t count);
  void step(const DeviceCache& cache, size_t position);
  void one_step(const DeviceCache& cache, uint32_t blocks);

  DecoderConfig config_;
  DeviceLinear embed_, lm_head_;
  bool tied_;
  std::vector<std::unique_ptr<DeviceLayer>> layers_;
  DeviceBuffer norm_, sum_weights_, cos_, sin_;
  size_t rope_positions_ = 0;
  std::unique_ptr<DeviceWorkspace> work_;
  std::map<uint32_t, std::unique_ptr<Graph>> graphs_;  // by room for key blocks; all of cache graph_cache_
  uint64_t graph_cache_ = 0;
  size_t limit_ = 0;
  bool use_graphs_ = true;
  cudaStream_t stream_ = nullptr;
  std::mutex mutex_;  // one call at a time: the workspace is shared
};

}  // namespace intattention::cuda
