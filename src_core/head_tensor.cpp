#include "head_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "dispatch.h"
#include "error.h"
#include "packing.h"
#include "rotation.h"

namespace intattention {
namespace {

template <typename T>
T load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

float bf16_to_f32(uint16_t bits) {
  const uint32_t word = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

void quantize_row(const char* name, const HeadTensor& x, size_t head, size_t token, int8_t* q, float* scale) {
  float room[kMaxHeadDim];
  rotate_quantize(active_table(), x.head_dim, x.row(head, token, room), q, scale);
  if (!std::isfinite(*scale))
    throw InvalidArgument(message(name, " holds NaN or Inf (head vector ", head * x.length + token, ")"));
}

}  // namespace

size_t element_bytes(ElementType type) { return type == ElementType::kF32 ? 4 : type == ElementType::kS8 ? 1 : 2; }

HeadTensor HeadTensor::contiguous(const float* data, size_t heads, size_t length, size_t head_dim) {
  const auto row = static_cast<std::ptrdiff_t>(head_dim * sizeof(float));
  return {data, ElementType::kF32, heads, length, head_dim, {row * static_cast<std::ptrdiff_t>(length), row, 4}};
}

const float* HeadTensor::row(size_t head, size_t token, float* room) const {
  const auto h = static_cast<std::ptrdiff_t>(head), t = static_cast<std::ptrdiff_t>(token);
  const auto* at = static_cast<const uint8_t*>(data) + h * strides[0] + t * strides[1];
  const bool aligned = reinterpret_cast<uintptr_t>(at) % alignof(float) == 0;
  if (type == ElementType::kF32 && strides[2] == sizeof(float) && aligned) return reinterpret_cast<const float*>(at);
  float unit = 1.0f;
  if (type == ElementType::kS8)
    unit = load<float>(reinterpret_cast<const uint8_t*>(scale) + h * scale_strides[0] + t * scale_strides[1]);
  for (size_t c = 0; c < head_dim; ++c, at += strides[2]) switch (type) {
      case ElementType::kF32:
        room[c] = load<float>(at);
        break;
      case ElementType::kF16:
        room[c] = f16_to_f32(load<uint16_t>(at));
        break;
      case ElementType::kBF16:
        room[c] = bf16_to_f32(load<uint16_t>(at));
        break;
      case ElementType::kS8:
        room[c] = static_cast<float>(load<int8_t>(at)) * unit;
        break;
    }
  return room;
}

AttentionShape checked_attention_shape(size_t n_heads, size_t n_kv_heads, size_t head_dim, size_t q_len, Mask mask,
                                       float scale) {
  if (q_len == 0 || mask.kv_len == 0 || n_heads == 0 || n_kv_heads == 0 || n_heads % n_kv_heads != 0)
    throw InvalidArgument(message("attention: ", n_heads, " query heads, ", n_kv_heads, " kv heads, q_len ", q_len,
                                  ", kv_len ", mask.kv_len,
                                  ": none may be 0 and the query heads must be a multiple of the kv heads"));
  if (head_dim == 0 || head_dim % 16 != 0 || head_dim > kMaxHeadDim)
    throw InvalidArgument(
        message("attention: head_dim ", head_dim, " must be a multiple of 16, at most ", kMaxHeadDim));
  if (mask.causal && q_len > mask.kv_len)
    throw InvalidArgument(message("attention: causal with q_len ", q_len, " > kv_len ", mask.kv_len));
  if (!mask.causal && (mask.window != 0 || mask.prefix != 0))
    throw InvalidArgument(message("attention: window ", mask.window, " and prefix ", mask.prefix, " need causal=True"));
  if (mask.window != 0 && mask.prefix != 0)
    throw InvalidArgument(
        message("attention: window ", mask.window, " and prefix ", mask.prefix, " exclude each other"));
  if (!(scale > 0.0f && std::isfinite(scale)))
    throw InvalidArgument(message("attention: scale is ", scale, ", expected a finite number > 0"));
  mask.q_position = mask.causal ? mask.kv_len - q_len : 0;
  return {n_heads, n_kv_heads, head_dim, q_len, mask, scale};
}

void write_heads(ThreadPool& pool, KVCache& cache, size_t layer, size_t position, const HeadTensor& k,
                 const HeadTensor& v) {
  const size_t d = k.head_dim, first_block = position / kKeyBlock, end = position + k.length;
  const size_t blocks = (end - 1) / kKeyBlock - first_block + 1;
  const auto threads = static_cast<size_t>(pool.threads());
  AlignedBuffer rows(threads * 2 * kKeyBlock * d);
  pool.parallel_for(k.heads * blocks, [&](size_t item, int worker) {
    const size_t head = item / blocks, block = first_block + item % blocks;
    const size_t begin = std::max(position, block * kKeyBlock), stop = std::min(end, (block + 1) * kKeyBlock);
    int8_t* k8 = rows.as<int8_t>() + static_cast<size_t>(worker) * 2 * kKeyBlock * d;
    int8_t* v8 = k8 + kKeyBlock * d;
    float k_scale[kKeyBlock], v_scale[kKeyBlock];
    for (size_t i = 0; i < stop - begin; ++i) {
      quantize_row("k", k, head, begin - position + i, k8 + i * d, k_scale + i);
      quantize_row("v", v, head, begin - position + i, v8 + i * d, v_scale + i);
    }
    cache.write(layer, head, begin, stop - begin, k8, k_scale, v8, v_scale);
  });
}

GroupedQueries::GroupedQueries(ThreadPool& pool, const HeadTensor& x, size_t n_kv_heads)
    : q(x.heads * x.length * x.head_dim), scale(x.heads * x.length * sizeof(float)) {
  const size_t group = x.heads / n_kv_heads;
  pool.parallel_for(x.heads, [&](size_t h, int) {
    for (size_t t = 0; t < x.length; ++t) {
      const size_t to = (h / group * x.length + t) * group + h % group;
      quantize_row("q", x, h, t, q.as<int8_t>() + to * x.head_dim, scale.as<float>() + to);
    }
  });
}

}  // namespace intattention
