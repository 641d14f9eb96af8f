// 1 to 8 rows of int8 activations against int4 or int8 weights: decoding, bound by the bytes of the weights.
//
// One block per multiprocessor takes its share of the chunks (gemv_share.cuh). Its warps:
//
//   producers   each takes every 12th chunk (4 groups of 32 along k; a lane is a row, so it holds whole groups and
//               nothing is shuffled), forms t = sx * isum of each group and leaves it, with the scales, in shared
//               memory
//   chain       one warp adds them up, y = fma(d, t, y), in order of k: the order is what makes the bits those of the
//               CPU
//   finisher    SwiGLU of what the chain has added up, where that is wanted
//
// Weights come by cp.async, kSlots chunks ahead of every producer: enough bytes in flight to keep the memory busy, and
// what a block asks for before it waits for the previous kernel fills the gap between the two.
//
// Tried: a block per row tile with chunks in registers (54 to 65 % of the read bandwidth where tiles are few); a row
// per warp with a shuffle tree (another order of k, other bits).
#include <algorithm>

#include "gemv_norm.cuh"
#include "gemv_warps.cuh"
#include "launch.h"

namespace intattention::cuda {
namespace {

template <WeightFormat F, int M, bool kSwiglu, bool kNorm>
__global__ void __launch_bounds__(kThreads<kSwiglu>, M <= 2 ? 2 : 1) gemv_kernel(const GemvArgs a) {
  extern __shared__ __align__(16) uint8_t memory[];
  __shared__ Barriers barriers;
  const GemvShared<F, M> s(memory, kProducers * kSlots<F>, kProducers * kRounds, a.w.chunks);
  const Share share(a.line, blockIdx.x);
  const Producer<F, M> producer(a, share, s);
  const uint32_t warp = threadIdx.x / kWarp;
  if (warp < kProducers) producer.start();
  if (threadIdx.x == 0) barriers.init();
  if constexpr (kNorm) {
    static_assert(squares_bytes(kMaxNormedRow) <= kProducers * kRounds * sizeof(Terms<F, M>));
    const NormFill<F, kThreads<kSwiglu>> norm(a.norm, a.w.k);
    let_next_start();
    wait_for_previous();
    norm.fill(a.w, s);
  } else {
    let_next_start();
    wait_for_previous();
    fill<F, M>(a.w, a.x, a.tokens, s);
  }
  __syncthreads();
  if (warp < kProducers)
    producer.run(barriers);
  else if (warp == kProducers)
    Chain<F, M, kSwiglu>(a, share, s).run(barriers);
  else if (kSwiglu)
    finish<F, M>(a, share, s, barriers);
}

struct Device {
  int id = -1, multiprocessors = 0, shared = 0;
};

const Device& device() {
  thread_local Device d;
  int id;
  check(cudaGetDevice(&id), "cudaGetDevice");
  if (d.id == id) return d;
  check(cudaDeviceGetAttribute(&d.multiprocessors, cudaDevAttrMultiProcessorCount, id), "multiprocessors");
  check(cudaDeviceGetAttribute(&d.shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, id), "shared memory");
  d.shared -= static_cast<int>(sizeof(Barriers));  // which are not in the dynamic part
  d.id = id;
  return d;
}

template <WeightFormat F, int M>
size_t shared_bytes(uint32_t chunks) {
  return GemvShared<F, M>::bytes(kProducers * kSlots<F>, kProducers * kRounds, chunks);
}

template <WeightFormat F, int M, bool kSwiglu, bool kNorm>
void run(GemvArgs a, cudaStream_t stream) {
  const Device& dev = device();
  const uint32_t multiprocessors = static_cast<uint32_t>(dev.multiprocessors);
  a.height = kRowTile;
  if (!kSwiglu && a.w.tiles < multiprocessors) {
    constexpr uint32_t kStep = 4;  // rows: 64 bytes of a group, as memory is read
    const uint32_t rows = (a.w.rows + multiprocessors - 1) / multiprocessors;
    a.height = (rows + kStep - 1) / kStep * kStep;
  }
  const uint32_t units = (a.w.rows + a.height - 1) / a.height / (kSwiglu ? 2 : 1);
  a.line = Line(units, a.w.chunks, kSwiglu ? 2 : 1, std::min(units, multiprocessors));
  const size_t shared = shared_bytes<F, M>(a.w.chunks);
  const auto kernel = gemv_kernel<F, M, kSwiglu, kNorm>;
  if (shared > static_cast<size_t>(dev.shared))
    throw CudaError(message("gemv_wxa8: k ", a.w.k, " needs ", shared, " bytes of shared memory"));
  thread_local int allowed_on = -1;
  if (allowed_on != dev.id) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dev.shared), "gemv_wxa8");
    allowed_on = dev.id;
  }
  launch("gemv_wxa8", kernel, {a.line.blocks, 1, kThreads<kSwiglu>, shared}, stream, a);
}

// Tokens at once: as many as the activations' room in shared memory allows.
template <WeightFormat F>
uint32_t tokens_at_once(uint32_t chunks) {
  const size_t room = static_cast<size_t>(device().shared);
  return shared_bytes<F, 8>(chunks) <= room   ? 8
         : shared_bytes<F, 4>(chunks) <= room ? 4
         : shared_bytes<F, 2>(chunks) <= room ? 2
                                              : 1;
}

DeviceRows from(const DeviceRows& rows, uint32_t token, uint32_t k) {
  const size_t group = static_cast<size_t>(token) * (k / kGroup);
  return {rows.q + static_cast<size_t>(token) * k, rows.scale + group, rows.sum + group};
}

template <WeightFormat F, bool kSwiglu>
void run_tokens(const GemvArgs& all, cudaStream_t stream) {
  if (all.norm.hidden != nullptr) return run<F, 1, kSwiglu, true>(all, stream);
  const uint32_t step = tokens_at_once<F>(all.w.chunks);
  for (uint32_t t = 0; t < all.tokens; t += step) {
    GemvArgs a = all;
    a.tokens = std::min(step, all.tokens - t);
    a.x = from(all.x, t, a.w.k);
    if (kSwiglu)
      a.act = from(all.act, t, a.w.rows / 2);
    else
      a.y = all.y + static_cast<size_t>(t) * a.ldy;
    (a.tokens == 1   ? run<F, 1, kSwiglu, false>
     : a.tokens == 2 ? run<F, 2, kSwiglu, false>
     : a.tokens <= 4 ? run<F, 4, kSwiglu, false>
                     : run<F, 8, kSwiglu, false>)(a, stream);
  }
}

void check_normed(const WeightView& w) {
  if (w.k > kMaxNormedRow) throw CudaError(message("gemv: a norm of ", w.k, " values, the limit is ", kMaxNormedRow));
}

template <bool kSwiglu>
void run_format(const GemvArgs& a, cudaStream_t stream) {
  switch (a.w.format) {
    case WeightFormat::kW4G32:
      return run_tokens<WeightFormat::kW4G32, kSwiglu>(a, stream);
    case WeightFormat::kW4G32A:
      return run_tokens<WeightFormat::kW4G32A, kSwiglu>(a, stream);
    case WeightFormat::kW8G32:
      return run_tokens<WeightFormat::kW8G32, kSwiglu>(a, stream);
  }
}

}  // namespace

GemvScratch::GemvScratch()
    : sums_(static_cast<size_t>(device().multiprocessors) * kMaxGemvTokens * 2 * kWarp * sizeof(uint64_t)) {}

void gemv_wxa8(const WeightView& w, uint32_t tokens, const DeviceRows& x, float* y, uint32_t ldy,
               const GemvScratch& scratch, cudaStream_t stream) {
  run_format<false>({w, x, {}, tokens, y, ldy, {}, scratch.sums(), 0, {}}, stream);
}

void gemv_wxa8(const WeightView& w, const NormedRow& x, float* y, const GemvScratch& scratch, cudaStream_t stream) {
  check_normed(w);
  run_format<false>({w, {}, x, 1, y, 0, {}, scratch.sums(), 0, {}}, stream);
}

void gemv_swiglu(const WeightView& w, uint32_t tokens, const DeviceRows& x, const DeviceRows& act,
                 const GemvScratch& scratch, cudaStream_t stream) {
  run_format<true>({w, x, {}, tokens, nullptr, 0, act, scratch.sums(), 0, {}}, stream);
}

void gemv_swiglu(const WeightView& w, const NormedRow& x, const DeviceRows& act, const GemvScratch& scratch,
                 cudaStream_t stream) {
  check_normed(w);
  run_format<true>({w, {}, x, 1, nullptr, 0, act, scratch.sums(), 0, {}}, stream);
}

}  // namespace intattention::cuda
