// The kernels of a step, in the order in which it runs them. Pointers are the device's; a launch throws CudaError.
// T tokens; position of the first one and its id lie in device memory (StepState), so that a captured graph serves
// every step. Definitions: docs/numerics.md; every number is the CPU's to the bit.
#pragma once

#include "device_weights.h"

namespace intattention::cuda {

// What one step hands to the next without the host.
struct StepState {
  int32_t token;     // id of the token to run
  int32_t position;  // of token 0 of the call
  int32_t step;      // greedy steps done
  uint32_t bad;      // kBad... bits
};
constexpr uint32_t kBadQkv = 1, kBadLogit = 2;

#ifdef __CUDACC__
// Position of token 0, which a kernel may ask for before it waits for the previous one: embed() has let none of them
// start before it was written. From L2: the multiprocessor may hold an older one.
__device__ inline uint32_t position_of(const StepState* state) {
  return static_cast<uint32_t>(__ldcg(&state->position));
}
#endif

// s8 activations in groups of 32 along k, as QuantizedRows.
struct DeviceRows {
  int8_t* q;     // [T][k]
  float* scale;  // [T][k / 32]
  int32_t* sum;  // [T][k / 32]
};

// A row of activations that is still to be made: RMSNorm(hidden + add), quantised. `sum` gets hidden + add, for it is
// the residual stream from then on, and is another buffer than `hidden`; add null: the row is `hidden`, and `sum`
// stays.
struct NormedRow {
  const float *hidden, *add, *weight;
  float eps;
  float* sum;
};
constexpr uint32_t kMaxNormedRow = 4576;  // values: their squares lie where a GEMV has its terms later

// hidden[t] = row ids[t] of the embedding, as float; ids null: the one id of `state`.
void embed(const WeightView& weights, const int32_t* ids, const StepState* state, uint32_t tokens, float* hidden,
           cudaStream_t stream);

constexpr uint32_t kMaxDeviceHidden = 20 << 10;  // values of a row that norm_quantize has

// hidden += add (unless null), then RMSNorm and quantisation; n a multiple of 32.
void norm_quantize(uint32_t tokens, uint32_t n, float* hidden, const float* add, const float* weight, float eps,
                   const DeviceRows& out, cudaStream_t stream);

void quantize_rows(uint32_t tokens, uint32_t n, const float* x, const DeviceRows& out, cudaStream_t stream);

// act = SwiGLU(gate, up) of gate_up [T][2 * n], quantised.
void swiglu_quantize(uint32_t tokens, uint32_t n, const float* gate_up, bool interleaved, const DeviceRows& out,
                     cudaStream_t stream);

constexpr uint32_t kMaxGemvTokens = 8;

// What the blocks of a GEMV hand each other; launches that may run at the same time need one each.
class GemvScratch {
 public:
  GemvScratch();  // of the current device
  uint64_t* sums() const { return sums_.as<uint64_t>(); }

 private:
  DeviceBuffer sums_;
};

// y[t * ldy + row], 1 to 8 tokens (gemv) or any number (gemm); of rows, or of one that is at most kMaxNormedRow long
// and not made yet.
void gemv_wxa8(const WeightView& w, uint32_t tokens, const DeviceRows& x, float* y, uint32_t ldy,
               const GemvScratch& scratch, cudaStream_t stream);
void gemv_wxa8(const WeightView& w, const NormedRow& x, float* y, const GemvScratch& scratch, cudaStream_t stream);
void gemm_wxa8(const WeightView& w, uint32_t tokens, const DeviceRows& x, float* y, uint32_t ldy, cudaStream_t stream);

// The same on interleaved gate and up, followed by SwiGLU and quantisation in the same kernel; 1 to 8 tokens.
void gemv_swiglu(const WeightView& w, uint32_t tokens, const DeviceRows& x, const DeviceRows& act,
                 const GemvScratch& scratch, cudaStream_t stream);
void gemv_swiglu(const WeightView& w, const NormedRow& x, const DeviceRows& act, const GemvScratch& scratch,
                 cudaStream_t stream);

// --- attention ---

// One layer of the cache; per kv head, for each block of 256 keys:
//   k  [head_dim / 16][256 keys][16]     a thread is a key: 16 bytes of each are read side by side
//   v  [256 / 16 keys][head_dim][16]     a thread is a channel: 16 keys of each
struct CacheView {
  int8_t *k, *v;      // [kv_heads][capacity * head_dim]
  float* k_scale;     // [kv_heads][capacity]
  int16_t* v_log;     // [kv_heads][capacity]: log_scale of index_scale.h
  uint32_t capacity;  // tokens, a multiple of 256
  uint32_t kv_heads, head_dim;
};

// What a layer does to q and k besides RoPE; null where a model has it not (DecoderLayer).
struct QKVOptions {
  const float *bias, *q_norm, *k_norm, *qk_scale, *k_center;
  float eps;
};

struct RopeTable {
  const float *cos, *sin;  // [position][half]
  uint32_t half;
};

// qkv f32 [T][(heads + 2 * kv_heads) * head_dim] -> q, and rows of the cache from state->position on.
// q s8 [kv_heads][T][group][head_dim], q_scale [kv_heads][T][group]. NaN or Inf sets kBadQkv.
void rope_append(uint32_t tokens, uint32_t heads, const float* qkv, const QKVOptions& options, const RopeTable& rope,
                 const CacheView& cache, int8_t* q, float* q_scale, StepState* state, cudaStream_t stream);

struct AttentionArgs {
  CacheView cache;
  const int8_t* q;
  const float* q_scale;
  const StepState* state;
  uint32_t tokens, group, window;
  float scale;              // of the logits, over the size of the rotation
  float one;                // kSumWeightOne over the size of the rotation
  uint32_t rotation;        // its size
  const uint16_t* weights;  // sum_weights()
  float* out;               // f32 [T][heads * head_dim]
};

// Any number of tokens: a block of threads walks all keys of 8 query rows.
void attention_rows(const AttentionArgs& args, cudaStream_t stream);

// Scratch of attention_split: results per (query head, key block).
struct AttentionParts {
  int4* head;         // [heads][blocks]
  int32_t* out;       // [heads][blocks][head_dim]
  uint8_t* weights;   // [heads][blocks][256]: E', where a key is light
  uint32_t* arrived;  // [heads]: blocks of a head that are done; zeros between launches
  uint32_t blocks;    // room for
  static size_t bytes_per_block(uint32_t head_dim) { return sizeof(int4) + 4 * head_dim + kKeyBlock; }
};

// One token: a block of threads per key block (split-KV), then the merge, in the order of attention_rows; `blocks` of
// the grid, at least those that hold keys. `act`, if head_dim is a multiple of 32, gets the output quantised (else
// it must be made of args.out).
void attention_split(const AttentionArgs& args, const AttentionParts& parts, uint32_t blocks, const DeviceRows& act,
                     cudaStream_t stream);

constexpr uint32_t kMaxDeviceHeadDim = 256;

// rne(32767 * exp(-i counts)) for i = 0 .. kLogScaleContrast (index_scale.cpp).
std::vector<uint16_t> sum_weights();

// Index of the largest of `limit` logits, the first of equal ones, into state->token and ids[state->step++]; position
// moves on by one. A logit of all `n` that is not finite sets kBadLogit.
void argmax(const float* logits, uint32_t n, uint32_t limit, float* value_scratch, int32_t* index_scratch,
            StepState* state, int32_t* ids, uint32_t max_ids, cudaStream_t stream);
constexpr uint32_t kArgmaxBlocks = 64;

}  // namespace intattention::cuda
