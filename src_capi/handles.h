// What the handles of include/intattention.h hold, and how every function of it begins: a guard that turns
// exceptions into a status, a kind check of its handles, the context's allocator.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "aligned_buffer.h"
#include "error.h"
#include "iatt_model.h"
#include "intattention.h"
#include "kv_cache.h"
#include "linear.h"
#include "sampler.h"
#include "thread_pool.h"

namespace intattention::capi {

// First member of every handle, so that one passed as another kind (easy through a foreign function interface) is seen.
enum class Kind : uint32_t { kContext = 0x1a7c0001, kCache, kLinear, kModel, kSampler };

// What handles share with the context that they were made from.
struct Shared {
  std::shared_ptr<ThreadPool> pool;
  BufferAllocator allocator;

  const BufferAllocator* buffers() const { return allocator.allocate == nullptr ? nullptr : &allocator; }
};

// A cache or sampler serves one call at a time.
class InUse {
 public:
  explicit InUse(std::atomic<bool>* flag);  // throws Busy
  ~InUse() { flag_->store(false, std::memory_order_release); }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  std::atomic<bool>* flag_;
};
struct Busy : std::runtime_error {
  using std::runtime_error::runtime_error;
};

ia_status failed(ia_status status, const char* text) noexcept;
ia_status current_exception_status() noexcept;

// Runs body; its exception becomes a status and the text of ia_last_error().
template <typename Body>
ia_status guarded(Body&& body) noexcept {
  try {
    body();
    return IA_OK;
  } catch (...) {
    return current_exception_status();
  }
}

template <typename T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr) throw InvalidArgument(std::string(name) + " is null");
  return *pointer;
}

// Throws InvalidArgument unless it is a handle of its type.
template <typename Handle>
Handle& checked(Handle* handle, const char* name) {
  if (required(handle, name).kind != Handle::kKind)
    throw InvalidArgument(std::string(name) + " is no handle of that kind");
  return *handle;
}

// A copy of the caller's struct, as many bytes of it as the caller knows; null: all defaults.
template <typename Options>
Options options_of(const Options* given) {
  Options options{};
  if (given == nullptr) return options;
  if (given->struct_size == 0 || given->struct_size > sizeof options)
    throw InvalidArgument(message("struct_size is ", given->struct_size, ", this library knows ", sizeof options));
  std::memcpy(&options, given, given->struct_size);
  return options;
}

template <typename Handle>
void destroy(Handle** handle) noexcept {
  if (handle == nullptr || *handle == nullptr || (*handle)->kind != Handle::kKind) return;
  delete *handle;
  *handle = nullptr;
}

}  // namespace intattention::capi

struct ia_context {
  static constexpr auto kKind = intattention::capi::Kind::kContext;
  intattention::capi::Kind kind = kKind;
  std::shared_ptr<const intattention::capi::Shared> shared;
};

struct ia_cache {
  static constexpr auto kKind = intattention::capi::Kind::kCache;
  intattention::capi::Kind kind = kKind;
  std::shared_ptr<const intattention::capi::Shared> shared;
  intattention::KVCache cache;
  std::vector<size_t> rows;  // appended to each layer; cache.length() is the least of them
  mutable std::atomic<bool> in_use{false};

  ia_cache(std::shared_ptr<const intattention::capi::Shared> owner, intattention::KVCache content)
      : shared(std::move(owner)), cache(std::move(content)), rows(cache.n_layers(), cache.length()) {}
};

struct ia_linear {
  static constexpr auto kKind = intattention::capi::Kind::kLinear;
  intattention::capi::Kind kind = kKind;
  std::shared_ptr<const intattention::capi::Shared> shared;
  intattention::LinearW4A8 linear;
};

struct ia_model {
  static constexpr auto kKind = intattention::capi::Kind::kModel;
  intattention::capi::Kind kind = kKind;
  std::shared_ptr<const intattention::capi::Shared> shared;
  intattention::IattFile file;
  intattention::IattModel model;
};

struct ia_sampler {
  static constexpr auto kKind = intattention::capi::Kind::kSampler;
  intattention::capi::Kind kind = kKind;
  intattention::Sampler sampler;
  std::atomic<bool> in_use{false};

  explicit ia_sampler(const intattention::SamplingParams& params) : sampler(params) {}
};
