#include "device_decoder.h"

#include <algorithm>
#include <cmath>

#include "device_layer.h"
#include "device_workspace.h"
#include "forward_check.h"
#include "index_scale.h"
#include "rotation.h"

namespace intattention::cuda {

// Tokens per pass over the weights; bounds the workspace (310 MB for the shapes of a 7B model).
constexpr size_t kMaxBatch = 1024;

static void check_room(size_t count, const DeviceCache& cache) {
  if (cache.length() + count > cache.max_len())
    throw ContextOverflow(message("context overflow: ", cache.length(), " tokens in the cache and ", count,
                                  " new ones exceed the limit of ", cache.max_len()));
}

struct DeviceDecoder::Graph {
  cudaGraphExec_t exec = nullptr;
  ~Graph() {
    if (exec != nullptr) cudaGraphExecDestroy(exec);
  }
};

std::vector<uint16_t> sum_weights() {
  std::vector<uint16_t> weights;
  for (int i = 0; i <= kLogScaleContrast; ++i)
    weights.push_back(static_cast<uint16_t>(std::nearbyint(kSumWeightOne * std::exp(-i / kCountsPerNat))));
  return weights;
}

DeviceDecoder::DeviceDecoder(const Decoder& model)
    : config_(model.config()),
      embed_(LinearW4A8({model.embed_tokens()})),
      tied_(model.lm_head().parts().front() == model.embed_tokens()),
      norm_(DeviceBuffer::of(model.norm())),
      sum_weights_(DeviceBuffer::of(sum_weights())),
      limit_(config_.vocab_size) {
  if (config_.head_dim > kMaxDeviceHeadDim)
    throw InvalidArgument(message("cuda: head_dim ", config_.head_dim, " exceeds ", kMaxDeviceHeadDim));
  if (config_.hidden_size > kMaxDeviceHidden)
    throw InvalidArgument(message("cuda: hidden_size ", config_.hidden_size, " exceeds ", kMaxDeviceHidden));
  if (!tied_) lm_head_ = DeviceLinear(model.lm_head());
  for (const auto& layer : model.layers()) {
    if (!layer->o_bias.empty() || !layer->gate_up_bias.empty() || !layer->down_bias.empty())
      throw InvalidArgument("cuda: o_proj, gate_proj, up_proj or down_proj has a bias; those of q, k and v are built");
    layers_.push_back(std::make_unique<DeviceLayer>(*layer));
  }
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
}

DeviceDecoder::~DeviceDecoder() {
  graphs_.clear();
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

size_t DeviceDecoder::nbytes() const {
  size_t bytes = embed_.nbytes() + lm_head_.nbytes();
  for (const auto& layer : layers_) bytes += layer->nbytes();
  return bytes;
}

std::unique_ptr<DeviceCache> DeviceDecoder::new_cache(size_t max_len) const {
  return std::make_unique<DeviceCache>(config_.num_hidden_layers, config_.num_key_value_heads, config_.head_dim,
                                       max_len);
}

void DeviceDecoder::forward(const int32_t* ids, size_t count, DeviceCache& cache, LogitRows rows, float* logits) {
  std::lock_guard<std::mutex> lock(mutex_);
  check_forward(config_, ids, count, cache);
  check_room(count, cache);
  prepare(count, cache);
  const size_t first = cache.length(), vocab = config_.vocab_size;
  const auto download = [&](size_t n) {
    check(
        cudaMemcpyAsync(logits, work_->logits.as<float>(), n * vocab * sizeof(float), cudaMemcpyDeviceToHost, stream_),
        "logits to the host");
    logits += n * vocab;
  };
  for (size_t done = 0; done < count;) {
    const size_t batch = std::min(kMaxBatch, count - done);
    start(ids[done], first + done);
    if (batch == 1 && rows != LogitRows::kNone) {
      step(cache, first + done);
      if (rows == LogitRows::kAll || done + 1 == count) download(1);
    } else {
      std::copy_n(ids + done, batch, work_->host_ids.as<int32_t>());
      check(cudaMemcpyAsync(work_->ids.as<int32_t>(), work_->host_ids.as<int32_t>(), batch * sizeof(int32_t),
                            cudaMemcpyHostToDevice, stream_),
            "ids to the device");
      const Residual residual =
          run_layers(static_cast<uint32_t>(batch), cache, static_cast<uint32_t>(cache.capacity() / kKeyBlock));
      const bool last = done + batch == count;
      size_t row = rows == LogitRows::kAll ? 0 : rows == LogitRows::kLast && last ? batch - 1 : batch;
      for (size_t n; row < batch; row += n) {
        n = std::min(kLogitRows, batch - row);
        output(residual, row, static_cast<uint32_t>(n));
        download(n);
      }
    }
    finish(first + done, batch);
    done += batch;
  }
  cache.set_length(first + count);
}

void DeviceDecoder::greedy(int32_t id, size_t count, size_t limit, DeviceCache& cache, int32_t* ids) {
  std::lock_guard<std::mutex> lock(mutex_);
  check_forward(config_, &id, count == 0 ? 0 : 1, cache);
  if (limit == 0 || limit > config_.vocab_size)
    throw InvalidArgument(message("greedy: limit ", limit, ", the vocabulary has ", config_.vocab_size));
  check_room(count, cache);
  prepare(1, cache);
  if (limit != limit_) graphs_.clear();
  limit_ = limit;
  const size_t first = cache.length();
  start(id, first);
  for (size_t i = 0; i < count; ++i) step(cache, first + i);
  finish(first, count);
  work_->chosen.download(ids, count);
  cache.set_length(first + count);
}

// Takes what memory the call needs; captured graphs hold addresses, so they go when one changes.
void DeviceDecoder::prepare(size_t count, const DeviceCache& cache) {
  const size_t tokens = std::min(count, kMaxBatch), capacity = cache.capacity();
  if (cache.id() != graph_cache_) graphs_.clear();
  graph_cache_ = cache.id();
  if (!work_ || work_->tokens < tokens || work_->capacity < capacity) {
    graphs_.clear();
    const size_t old_tokens = work_ ? work_->tokens : 0, old_capacity = work_ ? work_->capacity : 0;
    work_.reset();
    work_ = std::make_unique<DeviceWorkspace>(config_, std::max(tokens, old_tokens), std::max(capacity, old_capacity));
  }
  if (rope_positions_ >= capacity) return;
  graphs_.clear();
  std::vector<float> cos(capacity * config_.rope.dim() / 2), sin(cos.size());
  config_.rope.angles(0, capacity, cos.data(), sin.data());
  cos_ = DeviceBuffer::of(cos);
  sin_ = DeviceBuffer::of(sin);
  rope_positions_ = capacity;
  check(cudaDeviceSynchronize(), "upload");
}

void DeviceDecoder::start(int32_t token, size_t position) {
  *work_->host_state.as<StepState>() = {token, static_cast<int32_t>(position), 0, 0};
  check(cudaMemcpyAsync(work_->state.as<StepState>(), work_->host_state.as<StepState>(), sizeof(StepState),
                        cudaMemcpyHostToDevice, stream_),
        "state to the device");
}

void DeviceDecoder::finish(size_t position, size_t count) {
  StepState* state = work_->host_state.as<StepState>();
  check(cudaMemcpyAsync(state, work_->state.as<StepState>(), sizeof(StepState), cudaMemcpyDeviceToHost, stream_),
        "state to the host");
  check(cudaStreamSynchronize(stream_), "step");
  if (state->bad & kBadQkv)
    throw NumericError(
        message("NaN or Inf in q, k or v of the tokens at positions ", position, " to ", position + count - 1));
  if (state->bad & kBadLogit)
    throw NumericError(
        message("a logit of the tokens at positions ", position, " to ", position + count - 1, " is not finite"));
}

void DeviceDecoder::linear(const DeviceLinear& linear, uint32_t tokens, const DeviceRows& x, float* y) {
  for (const auto& segment : linear.segments) {
    const WeightView w = segment.weights.view();
    if (tokens <= kMaxGemvTokens)
      gemv_wxa8(w, tokens, x, y + segment.column, linear.out_features, work_->gemv, stream_);
    else
      gemm_wxa8(w, tokens, x, y + segment.column, linear.out_features, stream_);
  }
}

bool DeviceDecoder::norms_in_gemv(uint32_t tokens) const { return tokens == 1 && config_.hidden_size <= kMaxNormedRow; }

// The norm of a single token, for the GEMVs that are to compute it; after them hidden + add is in residual.hidden.
NormedRow DeviceDecoder::normed_row(Residual& residual, const DeviceBuffer& weight) const {
  const NormedRow row{residual.hidden, residual.add, weight.as<float>(), config_.rms_norm_eps, residual.other};
  if (residual.add != nullptr) std::swap(residual.hidden, residual.other);
  residual.add = nullptr;
  return row;
}

// Norms of any number of tokens, into work_->normed.
void DeviceDecoder::normed_rows(uint32_t tokens, Residual& residual, const DeviceBuffer& weight) {
  norm_quantize(tokens, static_cast<uint32_t>(config_.hidden_size), residual.hidden, residual.add, weight.as<float>(),
                config_.rms_norm_eps, work_->normed.rows(), stream_);
  residual.add = nullptr;
}

void DeviceDecoder::normed_linear(uint32_t tokens, Residual& residual, const DeviceBuffer& weight,
                                  const DeviceLinear& linear, float* y) {
  if (!norms_in_gemv(tokens)) {
    normed_rows(tokens, residual, weight);
    return this->linear(linear, tokens, work_->normed.rows(), y);
  }
  const NormedRow row = normed_row(residual, weight);
  for (const auto& segment : linear.segments)
    gemv_wxa8(segment.weights.view(), row, y + segment.column, work_->gemv, stream_);
}

// Returns the residual stream after the last layer.
DeviceDecoder::Residual DeviceDecoder::run_layers(uint32_t tokens, const DeviceCache& cache, uint32_t blocks) {
  const DeviceWorkspace& w = *work_;
  embed(embed_.segments.front().weights.view(), tokens == 1 ? nullptr : w.ids.as<int32_t>(), w.state.as<StepState>(),
        tokens, w.hidden.as<float>(), stream_);
  Residual residual{w.hidden.as<float>(), w.hidden_sum.as<float>(), nullptr};
  for (size_t i = 0; i < layers_.size(); ++i) run_layer(*layers_[i], tokens, cache.view(i), residual, blocks);
  return residual;
}

void DeviceDecoder::run_layer(const DeviceLayer& layer, uint32_t tokens, const CacheView& cache, Residual& residual,
                              uint32_t blocks) {
  const DeviceWorkspace& w = *work_;
  normed_linear(tokens, residual, layer.input_layernorm, layer.qkv, w.qkv.as<float>());
  attend(layer, tokens, cache, blocks);
  linear(layer.o, tokens, w.attn_q.rows(), w.projected.as<float>());
  residual.add = w.projected.as<float>();
  feed_forward(layer, tokens, residual);
  residual.add = w.projected.as<float>();
}

void DeviceDecoder::attend(const DeviceLayer& layer, uint32_t tokens, const CacheView& cache, uint32_t blocks) {
  const DeviceWorkspace& w = *work_;
  const uint32_t heads = static_cast<uint32_t>(config_.num_attention_heads), d = cache.head_dim;
  const QKVOptions options{layer.bias.as<float>(),     layer.q_norm.as<float>(),   layer.k_norm.as<float>(),
                           layer.qk_scale.as<float>(), layer.k_center.as<float>(), config_.rms_norm_eps};
  const RopeTable rope{cos_.as<float>(), sin_.as<float>(), static_cast<uint32_t>(config_.rope.dim() / 2)};
  rope_append(tokens, heads, w.qkv.as<float>(), options, rope, cache, w.q.as<int8_t>(), w.q_scale.as<float>(),
              w.state.as<StepState>(), stream_);
  const float rotation = static_cast<float>(rotation_size(d));
  const AttentionArgs args{cache,
                           w.q.as<int8_t>(),
                           w.q_scale.as<float>(),
                           w.state.as<StepState>(),
                           tokens,
                           heads / cache.kv_heads,
                           layer.window,
                           (1.0f / std::sqrt(static_cast<float>(d))) / rotation,
                           static_cast<float>(kSumWeightOne) / rotation,
                           static_cast<uint32_t>(rotation_size(d)),
                           sum_weights_.as<uint16_t>(),
                           w.attn.as<float>()};
  if (tokens == 1)
    attention_split(args, w.parts(), blocks, w.attn_q.rows(), stream_);
  else
    attention_rows(args, stream_);
  if (tokens > 1 || d % kGroup != 0) quantize_rows(tokens, heads * d, w.attn.as<float>(), w.attn_q.rows(), stream_);
}

void DeviceDecoder::feed_forward(const DeviceLayer& layer, uint32_t tokens, Residual& residual) {
  const DeviceWorkspace& w = *work_;
  const DeviceBuffer& norm = layer.post_attention_layernorm;
  if (!layer.gate_up.interleaved || tokens > kMaxGemvTokens) {
    normed_linear(tokens, residual, norm, layer.gate_up, w.gate_up.as<float>());
    swiglu_quantize(tokens, static_cast<uint32_t>(config_.intermediate_size), w.gate_up.as<float>(),
                    layer.gate_up.interleaved, w.act.rows(), stream_);
  } else {
    const WeightView weights = layer.gate_up.segments.front().weights.view();
    if (norms_in_gemv(tokens)) {
      gemv_swiglu(weights, normed_row(residual, norm), w.act.rows(), w.gemv, stream_);
    } else {
      normed_rows(tokens, residual, norm);
      gemv_swiglu(weights, tokens, w.normed.rows(), w.act.rows(), w.gemv, stream_);
    }
  }
  linear(layer.down, tokens, w.act.rows(), w.projected.as<float>());
}

// Logits of rows first .. first+count-1 of the batch into rows 0 .. of work_->logits, and their argmax.
void DeviceDecoder::output(Residual residual, size_t first, uint32_t count) {
  const DeviceWorkspace& w = *work_;
  const size_t offset = first * config_.hidden_size;
  residual.hidden += offset;
  residual.add += offset;
  normed_linear(count, residual, norm_, tied_ ? embed_ : lm_head_, w.logits.as<float>());
  const uint32_t vocab = static_cast<uint32_t>(config_.vocab_size);
  argmax(w.logits.as<float>(), count * vocab, static_cast<uint32_t>(limit_), w.best_value.as<float>(),
         w.best_index.as<int32_t>(), w.state.as<StepState>(), w.chosen.as<int32_t>(), static_cast<uint32_t>(w.capacity),
         stream_);
}

void DeviceDecoder::one_step(const DeviceCache& cache, uint32_t blocks) { output(run_layers(1, cache, blocks), 0, 1); }

// One token. The grid of the attention has room for a power of two of key blocks, so there is one graph for each.
void DeviceDecoder::step(const DeviceCache& cache, size_t position) {
  const uint32_t needed = static_cast<uint32_t>(position / kKeyBlock + 1);
  uint32_t blocks = 1;
  while (blocks < needed) blocks *= 2;
  if (!use_graphs_) return one_step(cache, blocks);
  std::unique_ptr<Graph>& graph = graphs_[blocks];
  if (!graph) {
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    cudaGraph_t captured = nullptr;
    try {
      one_step(cache, blocks);
    } catch (...) {
      cudaStreamEndCapture(stream_, &captured);
      if (captured != nullptr) cudaGraphDestroy(captured);
      throw;
    }
    check(cudaStreamEndCapture(stream_, &captured), "capture");
    auto made = std::make_unique<Graph>();
    const cudaError_t status = cudaGraphInstantiate(&made->exec, captured, 0);
    cudaGraphDestroy(captured);
    check(status, "cudaGraphInstantiate");
    graph = std::move(made);
  }
  check(cudaGraphLaunch(graph->exec, stream_), "cudaGraphLaunch");
}

}  // namespace intattention::cuda
