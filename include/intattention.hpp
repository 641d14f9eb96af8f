// A thin C++17 face of intattention.h: handles that destroy themselves, ia::Error in place of a status. Header only;
// what a function does is said in intattention.h.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "intattention.h"

namespace ia {

class Error : public std::runtime_error {
 public:
  Error(ia_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  ia_status status() const noexcept { return status_; }

 private:
  ia_status status_;
};

// Throws Error unless IA_OK.
inline void check(ia_status status) {
  if (status != IA_OK) throw Error(status, std::string(ia_status_name(status)) + ": " + ia_last_error());
}

// Owns a handle; get() lends it to any function of intattention.h.
template <typename T, void (*Destroy)(T**)>
class Handle {
 public:
  T* get() const noexcept { return handle_.get(); }

 protected:
  // make(&raw) returns an ia_status.
  template <typename Make>
  explicit Handle(Make&& make) {
    T* raw = nullptr;
    check(make(&raw));
    handle_.reset(raw);
  }

 private:
  struct Delete {
    void operator()(T* raw) const noexcept { Destroy(&raw); }
  };
  std::unique_ptr<T, Delete> handle_;
};

class Context : public Handle<ia_context, ia_context_destroy> {
 public:
  explicit Context(int threads = 0, const std::vector<int>& cpus = {})
      : Handle([&](ia_context** out) {
          ia_context_options options{};
          options.struct_size = sizeof options;
          options.threads = threads;
          options.cpus = cpus.empty() ? nullptr : cpus.data();
          options.cpu_count = cpus.size();
          return ia_context_create(&options, out);
        }) {}
  explicit Context(const ia_context_options& options)
      : Handle([&](ia_context** out) { return ia_context_create(&options, out); }) {}
};

class Cache : public Handle<ia_cache, ia_cache_destroy> {
 public:
  Cache(const Context& context, size_t layers, size_t kv_heads, size_t head_dim, size_t max_length)
      : Handle([&](ia_cache** out) {
          return ia_cache_create(context.get(), layers, kv_heads, head_dim, max_length, out);
        }) {}
  explicit Cache(const ia_model* model) : Handle([&](ia_cache** out) { return ia_model_new_cache(model, out); }) {}

  Cache fork() const { return Cache(*this, 0); }
  size_t length() const {
    size_t tokens = 0;
    check(ia_cache_length(get(), &tokens));
    return tokens;
  }
  void truncate(size_t tokens) { check(ia_cache_truncate(get(), tokens)); }
  void append(size_t layer, const ia_tensor& k, const ia_tensor& v) { check(ia_cache_append(get(), layer, &k, &v)); }
  void attention(size_t layer, const ia_attention_options& options, const ia_tensor& q, const ia_output& out) {
    check(ia_cache_attention(get(), layer, &options, &q, &out));
  }

 private:
  Cache(const Cache& other, int) : Handle([&](ia_cache** out) { return ia_cache_fork(other.get(), out); }) {}
};

class Linear : public Handle<ia_linear, ia_linear_destroy> {
 public:
  Linear(const Context& context, ia_weight_format format, size_t out_features, size_t in_features, const float* w,
         const float* importance = nullptr)
      : Handle([&](ia_linear** out) {
          return ia_linear_create(context.get(), format, out_features, in_features, w, importance, out);
        }) {}
  void run(size_t rows, const float* x, float* y) const { check(ia_linear_run(get(), rows, x, y)); }
};

class Model : public Handle<ia_model, ia_model_destroy> {
 public:
  Model(const Context& context, const std::string& path, size_t tokens = 0, bool verify = false)
      : Handle([&](ia_model** out) {
          ia_model_options options{};
          options.struct_size = sizeof options;
          options.context = tokens;
          options.verify = verify;
          return ia_model_load(context.get(), path.c_str(), &options, out);
        }) {}

  ia_model_info info() const {
    ia_model_info info{};
    info.struct_size = sizeof info;
    check(ia_model_get_info(get(), &info));
    return info;
  }
  bool is_end(int32_t token) const {
    int end = 0;
    check(ia_model_is_end(get(), token, &end));
    return end != 0;
  }
  // Empty if the file has no such text.
  std::string_view text(const std::string& name) const {
    const char* text = nullptr;
    size_t bytes = 0;
    check(ia_model_text(get(), name.c_str(), &text, &bytes));
    return {text, bytes};
  }
  Cache new_cache() const { return Cache(get()); }
  // Logits [vocab_size] after the last id.
  std::vector<float> forward(Cache& cache, const std::vector<int32_t>& ids,
                             const ia_callbacks* callbacks = nullptr) const {
    std::vector<float> logits(info().vocab_size);
    check(ia_forward(get(), cache.get(), ids.data(), ids.size(), IA_LOGITS_LAST, logits.data(), logits.size(),
                     callbacks));
    return logits;
  }
};

class Sampler : public Handle<ia_sampler, ia_sampler_destroy> {
 public:
  Sampler() : Handle([](ia_sampler** out) { return ia_sampler_create(nullptr, out); }) {}  // greedy
  explicit Sampler(const ia_sampling& options)
      : Handle([&](ia_sampler** out) { return ia_sampler_create(&options, out); }) {}

  void see(const std::vector<int32_t>& ids) { check(ia_sampler_see(get(), ids.data(), ids.size())); }
  int32_t choose(const float* logits, size_t count) {
    int32_t token = 0;
    check(ia_sampler_choose(get(), logits, count, &token));
    return token;
  }
};

}  // namespace ia
