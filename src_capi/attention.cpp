#include <cmath>
#include <limits>

#include "handles.h"
#include "head_tensor.h"

using namespace intattention;
using namespace intattention::capi;

namespace {

constexpr size_t kMaxExtent = size_t{1} << 31;  // of a tensor's side: products of sizes stay within 64 bits

HeadTensor tensor_of(const ia_tensor* given, const char* name) {
  const ia_tensor& t = required(given, name);
  if (t.data == nullptr) throw InvalidArgument(message(name, ": data is null"));
  if (t.dtype < IA_F32 || t.dtype > IA_S8) throw InvalidArgument(message(name, ": dtype is ", t.dtype));
  if (t.dtype == IA_S8 && t.scale == nullptr) throw InvalidArgument(message(name, ": int8 without a scale"));
  if (t.heads == 0 || t.length == 0 || t.head_dim == 0 || t.heads > kMaxExtent || t.length > kMaxExtent ||
      t.head_dim > kMaxHeadDim || t.head_dim % 16 != 0)
    throw InvalidArgument(message(name, ": shape (", t.heads, ", ", t.length, ", ", t.head_dim,
                                  "): expected at least 1 each, head_dim a multiple of 16, at most ", kMaxHeadDim));
  HeadTensor x{t.data, static_cast<ElementType>(t.dtype), t.heads, t.length, t.head_dim, {}};
  if (t.strides[0] == 0 && t.strides[1] == 0 && t.strides[2] == 0) {
    x.strides[2] = static_cast<ptrdiff_t>(element_bytes(x.type));
    x.strides[1] = x.strides[2] * static_cast<ptrdiff_t>(t.head_dim);
    x.strides[0] = x.strides[1] * static_cast<ptrdiff_t>(t.length);
  } else {
    std::copy_n(t.strides, 3, x.strides);
  }
  x.scale = t.scale;
  std::copy_n(t.scale_strides, 2, x.scale_strides);
  return x;
}

AttentionOutput output_of(const ia_output* given, const HeadTensor& q) {
  const ia_output& out = required(given, "out");
  if (out.data == nullptr) throw InvalidArgument("out: data is null");
  if (out.strides[0] == 0 && out.strides[1] == 0) return {out.data, q.head_dim, q.length * q.head_dim};
  for (const ptrdiff_t stride : out.strides)
    if (stride < static_cast<ptrdiff_t>(q.head_dim * sizeof(float)) || stride % sizeof(float) != 0)
      throw InvalidArgument(message("out: stride ", stride, ": expected a multiple of 4 of at least one vector"));
  return {out.data, static_cast<size_t>(out.strides[1]) / sizeof(float),
          static_cast<size_t>(out.strides[0]) / sizeof(float)};
}

AttentionShape shape_of(const ia_attention_options* given, const HeadTensor& q, size_t kv_heads, size_t kv_len) {
  const ia_attention_options options = options_of(given);
  const float scale = options.scale == 0.0f ? 1.0f / std::sqrt(static_cast<float>(q.head_dim)) : options.scale;
  const Mask mask{kv_len, 0, options.causal != 0, options.window, options.prefix};
  return checked_attention_shape(q.heads, kv_heads, q.head_dim, q.length, mask, scale);
}

void check_same(const HeadTensor& k, const HeadTensor& v, size_t heads, size_t head_dim) {
  if (k.heads != heads || v.heads != heads || k.head_dim != head_dim || v.head_dim != head_dim || k.length != v.length)
    throw InvalidArgument(message("k (", k.heads, ", ", k.length, ", ", k.head_dim, ") and v (", v.heads, ", ",
                                  v.length, ", ", v.head_dim, "): expected ", heads, " heads of ", head_dim,
                                  " and one length"));
}

void attend(const Shared& shared, const AttentionShape& shape, const HeadTensor& q, const KVCache& cache, size_t layer,
            const AttentionOutput& out) {
  const GroupedQueries queries(*shared.pool, q, shape.n_kv_heads);
  AttentionWorkspace workspace;
  attention(*shared.pool, {{shape, queries.q.as<int8_t>(), queries.scale.as<float>(), &cache, out}}, layer, workspace);
}

void check_layer(const ia_cache& cache, size_t layer) {
  if (layer >= cache.rows.size())
    throw InvalidArgument(message("layer ", layer, " of a cache with ", cache.rows.size()));
}

}  // namespace

ia_status ia_attention(ia_context* context, const ia_attention_options* options, const ia_tensor* q_given,
                       const ia_tensor* k_given, const ia_tensor* v_given, const ia_output* out_given) {
  return guarded([&] {
    const Shared& shared = *checked(context, "context").shared;
    const HeadTensor q = tensor_of(q_given, "q"), k = tensor_of(k_given, "k"), v = tensor_of(v_given, "v");
    check_same(k, v, k.heads, q.head_dim);
    const AttentionOutput out = output_of(out_given, q);
    const AttentionShape shape = shape_of(options, q, k.heads, k.length);
    const ScopedAllocator scope(shared.buffers());
    const ThreadPool::CallerPin pin(*shared.pool);
    KVCache cache(1, k.heads, k.head_dim, k.length);
    cache.reserve(k.length);
    write_heads(*shared.pool, cache, 0, 0, k, v);
    cache.set_length(k.length);
    attend(shared, shape, q, cache, 0, out);
  });
}

ia_status ia_cache_create(ia_context* context, size_t layers, size_t kv_heads, size_t head_dim, size_t max_length,
                          ia_cache** cache) {
  return guarded([&] {
    required(cache, "cache");
    *cache = new ia_cache(checked(context, "context").shared, KVCache(layers, kv_heads, head_dim, max_length));
  });
}

void ia_cache_destroy(ia_cache** cache) { destroy(cache); }

ia_status ia_cache_length(const ia_cache* cache, size_t* tokens) {
  return guarded([&] {
    const ia_cache& c = checked(cache, "cache");
    const InUse use(&c.in_use);
    required(tokens, "tokens") = c.cache.length();
  });
}

ia_status ia_cache_bytes(const ia_cache* cache, size_t* bytes) {
  return guarded([&] {
    const ia_cache& c = checked(cache, "cache");
    const InUse use(&c.in_use);
    required(bytes, "bytes") = c.cache.nbytes();
  });
}

ia_status ia_cache_append(ia_cache* cache, size_t layer, const ia_tensor* k_given, const ia_tensor* v_given) {
  return guarded([&] {
    ia_cache& c = checked(cache, "cache");
    const InUse use(&c.in_use);
    check_layer(c, layer);
    const HeadTensor k = tensor_of(k_given, "k"), v = tensor_of(v_given, "v");
    check_same(k, v, c.cache.n_kv_heads(), c.cache.head_dim());
    const ScopedAllocator scope(c.shared->buffers());
    const ThreadPool::CallerPin pin(*c.shared->pool);
    size_t& rows = c.rows[layer];
    c.cache.reserve(std::max(rows + k.length, *std::max_element(c.rows.begin(), c.rows.end())));
    write_heads(*c.shared->pool, c.cache, layer, rows, k, v);
    rows += k.length;
    const size_t least = *std::min_element(c.rows.begin(), c.rows.end());
    if (least > c.cache.length()) c.cache.set_length(least);
  });
}

ia_status ia_cache_attention(ia_cache* cache, size_t layer, const ia_attention_options* options,
                             const ia_tensor* q_given, const ia_output* out_given) {
  return guarded([&] {
    ia_cache& c = checked(cache, "cache");
    const InUse use(&c.in_use);
    check_layer(c, layer);
    const HeadTensor q = tensor_of(q_given, "q");
    if (q.head_dim != c.cache.head_dim())
      throw InvalidArgument(message("q has head_dim ", q.head_dim, ", the cache ", c.cache.head_dim()));
    const AttentionOutput out = output_of(out_given, q);
    const AttentionShape shape = shape_of(options, q, c.cache.n_kv_heads(), c.rows[layer]);
    const ScopedAllocator scope(c.shared->buffers());
    const ThreadPool::CallerPin pin(*c.shared->pool);
    attend(*c.shared, shape, q, c.cache, layer, out);
  });
}

ia_status ia_cache_truncate(ia_cache* cache, size_t tokens) {
  return guarded([&] {
    ia_cache& c = checked(cache, "cache");
    const InUse use(&c.in_use);
    c.cache.truncate(tokens);
    c.rows.assign(c.rows.size(), tokens);
  });
}

ia_status ia_cache_fork(const ia_cache* cache, ia_cache** fork) {
  return guarded([&] {
    const ia_cache& c = checked(cache, "cache");
    required(fork, "fork");
    const InUse use(&c.in_use);
    auto made = std::make_unique<ia_cache>(c.shared, c.cache.fork());
    made->rows = c.rows;
    *fork = made.release();
  });
}
