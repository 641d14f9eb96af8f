#include <algorithm>

#include "handles.h"

using namespace intattention;
using namespace intattention::capi;

namespace {

// Tokens between two looks at the callbacks: what a small CPU prefills in a fraction of a second.
constexpr size_t kTokensPerCallback = 64;

void report(const ia_callbacks& callbacks, uint64_t done, uint64_t total) {
  if (callbacks.progress != nullptr) callbacks.progress(callbacks.user, done, total);
  if (done < total && callbacks.cancel != nullptr && callbacks.cancel(callbacks.user) != 0)
    throw Cancelled(message("cancelled after ", done, " of ", total));
}

// The cache is as it was if forward() throws between two pieces of a call.
class Rollback {
 public:
  explicit Rollback(KVCache* cache) : cache_(cache), length_(cache->length()) {}
  ~Rollback() {
    if (cache_ != nullptr) cache_->truncate(length_);
  }
  Rollback(const Rollback&) = delete;
  Rollback& operator=(const Rollback&) = delete;
  void dismiss() { cache_ = nullptr; }

 private:
  KVCache* cache_;
  size_t length_;
};

LogitRows rows_of(ia_logits which) {
  if (which < IA_LOGITS_NONE || which > IA_LOGITS_ALL) throw InvalidArgument(message("which is ", which));
  return static_cast<LogitRows>(which);
}

void check_logits(LogitRows rows, size_t count, size_t vocab, const float* logits, size_t size) {
  const size_t needed = logit_row_count(rows, count);
  if (needed == 0) return;
  if (logits == nullptr) throw InvalidArgument("logits is null");
  if (size / vocab < needed)
    throw InvalidArgument(message("logits: room for ", size, " floats, ", needed, " x ", vocab, " are needed"));
}

void forward(Decoder& decoder, KVCache& cache, const int32_t* ids, size_t count, LogitRows rows, float* logits,
             const ia_callbacks* callbacks) {
  if (callbacks == nullptr || count == 0) return decoder.forward(ids, count, cache, rows, logits);
  if (count > cache.max_len() - cache.length()) cache.reserve(cache.length() + count);  // throws before any work
  Rollback rollback(&cache);
  report(*callbacks, 0, count);
  for (size_t done = 0; done < count;) {
    const size_t piece = std::min(kTokensPerCallback, count - done);
    const LogitRows wanted = rows == LogitRows::kLast && done + piece < count ? LogitRows::kNone : rows;
    decoder.forward(ids + done, piece, cache, wanted, logits);
    if (rows == LogitRows::kAll) logits += piece * decoder.config().vocab_size;
    done += piece;
    report(*callbacks, done, count);
  }
  rollback.dismiss();
}

}  // namespace

ia_status ia_model_load(ia_context* context, const char* path, const ia_model_options* given, ia_model** model) {
  return guarded([&] {
    const ia_context& c = checked(context, "context");
    required(model, "model");
    const ia_model_options options = options_of(given);
    IattFile file(&required(path, "path"));
    if (options.verify != 0)
      file.verify([&](uint64_t done, uint64_t total) { report(options.callbacks, done, total); });
    const ScopedAllocator scope(c.shared->buffers());
    IattModel loaded = load_iatt_model(file, options.context, c.shared->pool);
    *model = new ia_model{ia_model::kKind, c.shared, std::move(file), std::move(loaded)};
  });
}

void ia_model_destroy(ia_model** model) { destroy(model); }

ia_status ia_model_get_info(const ia_model* model, ia_model_info* info) {
  return guarded([&] {
    const ia_model& m = checked(model, "model");
    const size_t size = required(info, "info").struct_size;
    options_of(info);  // checks struct_size
    const DecoderConfig& d = m.model.decoder->config();
    const ia_model_info all{size,
                            d.vocab_size,
                            m.model.token_count,
                            m.model.context,
                            d.hidden_size,
                            d.num_hidden_layers,
                            d.num_attention_heads,
                            d.num_key_value_heads,
                            d.head_dim,
                            m.model.decoder->nbytes()};
    std::memcpy(info, &all, size);
  });
}

ia_status ia_model_is_end(const ia_model* model, int32_t token, int* is_end) {
  return guarded([&] {
    const std::vector<int32_t>& ids = checked(model, "model").model.end_ids;
    required(is_end, "is_end") = std::find(ids.begin(), ids.end(), token) != ids.end();
  });
}

ia_status ia_model_text(const ia_model* model, const char* name, const char** text, size_t* bytes) {
  return guarded([&] {
    const std::string* found = checked(model, "model").file.text(&required(name, "name"));
    required(text, "text");
    required(bytes, "bytes") = found == nullptr ? 0 : found->size();
    *text = found == nullptr ? nullptr : found->data();
  });
}

ia_status ia_model_new_cache(const ia_model* model, ia_cache** cache) {
  return guarded([&] {
    const ia_model& m = checked(model, "model");
    required(cache, "cache");
    const DecoderConfig& d = m.model.decoder->config();
    *cache = new ia_cache(m.shared, KVCache(d.num_hidden_layers, d.num_key_value_heads, d.head_dim, m.model.context));
  });
}

ia_status ia_forward(const ia_model* model, ia_cache* cache, const int32_t* ids, size_t count, ia_logits which,
                     float* logits, size_t logits_size, const ia_callbacks* callbacks) {
  return guarded([&] {
    const ia_model& m = checked(model, "model");
    ia_cache& c = checked(cache, "cache");
    const InUse use(&c.in_use);
    if (c.shared != m.shared) throw InvalidArgument("the cache was made with another context than the model");
    Decoder& decoder = *m.model.decoder;
    if (count == 0) throw InvalidArgument("forward: no token ids");
    required(ids, "ids");
    const LogitRows rows = rows_of(which);
    check_logits(rows, count, decoder.config().vocab_size, logits, logits_size);
    for (const size_t appended : c.rows)
      if (appended != c.cache.length())
        throw InvalidArgument(message("the cache has ", appended, " rows in one layer and ", c.cache.length(),
                                      " in all: append to the others, or truncate"));
    const ScopedAllocator scope(m.shared->buffers());
    forward(decoder, c.cache, ids, count, rows, logits, callbacks);
    c.rows.assign(c.rows.size(), c.cache.length());
  });
}
