// The C API, used and abused: null and wrong handles, wrong sizes, two threads, cancelling. Runs under ASan and TSan.
#include "intattention.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>

#include "intattention.hpp"
#include "small_iatt.h"

namespace intattention::testing {
namespace {

constexpr size_t kVocab = SmallIatt::kVocab;

class CApi : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(IA_OK, ia_context_create(nullptr, &context_));
    ASSERT_EQ(IA_OK, ia_model_load(context_, file_.path().c_str(), nullptr, &model_)) << ia_last_error();
    ASSERT_EQ(IA_OK, ia_model_new_cache(model_, &cache_));
  }
  void TearDown() override {
    ia_context_destroy(&context_);  // before what was made from it: any order is allowed
    ia_cache_destroy(&cache_);
    ia_model_destroy(&model_);
  }

  static std::vector<int32_t> prompt(size_t count) {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>((i * 7 + 3) % 90));
    return ids;
  }
  ia_status forward(ia_cache* cache, const std::vector<int32_t>& ids, std::vector<float>* logits,
                    const ia_callbacks* callbacks = nullptr) const {
    logits->assign(kVocab, 0.0f);
    return ia_forward(model_, cache, ids.data(), ids.size(), IA_LOGITS_LAST, logits->data(), logits->size(), callbacks);
  }
  size_t length() const {
    size_t tokens = 99999;
    EXPECT_EQ(IA_OK, ia_cache_length(cache_, &tokens));
    return tokens;
  }

  SmallIatt file_;
  ia_context* context_ = nullptr;
  ia_model* model_ = nullptr;
  ia_cache* cache_ = nullptr;
};

// A handle of one kind where another belongs: what a foreign function interface without types lets through.
template <typename To, typename From>
To* disguised(From* handle) {
  return reinterpret_cast<To*>(handle);
}

bool last_error_has(const char* words) { return std::string(ia_last_error()).find(words) != std::string::npos; }

TEST_F(CApi, NullHandlesAndPointersAreRefused) {
  size_t n = 0;
  int i = 0;
  int32_t id = 0;
  float x = 0;
  int8_t q = 0;
  const char* text = nullptr;
  ia_tensor tensor{};
  ia_output out{};
  ia_cache* cache = nullptr;
  ia_linear* linear = nullptr;
  ia_model* model = nullptr;
  ia_model_info info{};
  const ia_status all[] = {ia_active_isa(nullptr),
                           ia_context_create(nullptr, nullptr),
                           ia_context_threads(nullptr, &i),
                           ia_context_threads(context_, nullptr),
                           ia_attention(nullptr, nullptr, &tensor, &tensor, &tensor, &out),
                           ia_attention(context_, nullptr, nullptr, nullptr, nullptr, nullptr),
                           ia_cache_create(nullptr, 1, 1, 16, 1, &cache),
                           ia_cache_create(context_, 1, 1, 16, 1, nullptr),
                           ia_cache_length(nullptr, &n),
                           ia_cache_length(cache_, nullptr),
                           ia_cache_bytes(nullptr, &n),
                           ia_cache_append(nullptr, 0, &tensor, &tensor),
                           ia_cache_append(cache_, 0, nullptr, nullptr),
                           ia_cache_attention(nullptr, 0, nullptr, &tensor, &out),
                           ia_cache_attention(cache_, 0, nullptr, nullptr, &out),
                           ia_cache_truncate(nullptr, 0),
                           ia_cache_fork(nullptr, &cache),
                           ia_cache_fork(cache_, nullptr),
                           ia_quantize(1, 8, nullptr, &q, &x),
                           ia_quantize(1, 8, &x, nullptr, &x),
                           ia_linear_create(nullptr, IA_W8G32, 8, 32, &x, nullptr, &linear),
                           ia_linear_create(context_, IA_W8G32, 8, 32, nullptr, nullptr, &linear),
                           ia_linear_create(context_, IA_W8G32, 8, 32, &x, nullptr, nullptr),
                           ia_linear_pack(context_, IA_W8G32, 8, 32, nullptr, nullptr, nullptr, &linear),
                           ia_linear_bytes(nullptr, &n),
                           ia_linear_run(nullptr, 1, &x, &x),
                           ia_model_load(nullptr, "x", nullptr, &model),
                           ia_model_load(context_, nullptr, nullptr, &model),
                           ia_model_load(context_, "x", nullptr, nullptr),
                           ia_model_get_info(nullptr, &info),
                           ia_model_get_info(model_, nullptr),
                           ia_model_get_info(model_, &info),
                           ia_model_is_end(nullptr, 0, &i),
                           ia_model_is_end(model_, 0, nullptr),
                           ia_model_text(nullptr, "x", &text, &n),
                           ia_model_text(model_, nullptr, &text, &n),
                           ia_model_text(model_, "x", nullptr, &n),
                           ia_model_new_cache(nullptr, &cache),
                           ia_model_new_cache(model_, nullptr),
                           ia_forward(nullptr, cache_, &id, 1, IA_LOGITS_NONE, nullptr, 0, nullptr),
                           ia_forward(model_, nullptr, &id, 1, IA_LOGITS_NONE, nullptr, 0, nullptr),
                           ia_forward(model_, cache_, nullptr, 1, IA_LOGITS_NONE, nullptr, 0, nullptr),
                           ia_forward(model_, cache_, &id, 1, IA_LOGITS_LAST, nullptr, kVocab, nullptr),
                           ia_sampler_create(nullptr, nullptr),
                           ia_sampler_see(nullptr, &id, 1),
                           ia_sampler_choose(nullptr, &x, 1, &id)};
  size_t index = 0;
  for (const ia_status status : all) EXPECT_EQ(IA_INVALID_ARGUMENT, status) << "call " << index++;
  EXPECT_EQ(nullptr, cache);
  EXPECT_EQ(nullptr, model);
  ia_context_destroy(nullptr);
  ia_cache_destroy(nullptr);
  ia_linear_destroy(nullptr);
  ia_model_destroy(nullptr);
  ia_sampler_destroy(nullptr);
}

TEST_F(CApi, HandlesOfAnotherKindAreRefused) {
  size_t n = 0;
  EXPECT_EQ(IA_INVALID_ARGUMENT, ia_cache_length(disguised<ia_cache>(context_), &n));
  EXPECT_TRUE(last_error_has("cache is no handle of that kind")) << ia_last_error();
  EXPECT_EQ(IA_INVALID_ARGUMENT, ia_linear_bytes(disguised<ia_linear>(cache_), &n));
  const int32_t id = 3;
  EXPECT_EQ(IA_INVALID_ARGUMENT,
            ia_forward(disguised<ia_model>(cache_), cache_, &id, 1, IA_LOGITS_NONE, nullptr, 0, nullptr));
  auto* wrong = disguised<ia_model>(context_);
  ia_model_destroy(&wrong);  // leaves it alone
  EXPECT_NE(nullptr, wrong);
  int threads = 0;
  EXPECT_EQ(IA_OK, ia_context_threads(context_, &threads));
}

TEST_F(CApi, DestroyingTwiceDoesNothing) {
  ia_sampler* sampler = nullptr;
  ASSERT_EQ(IA_OK, ia_sampler_create(nullptr, &sampler));
  for (int i = 0; i < 2; ++i) {
    ia_sampler_destroy(&sampler);
    ia_cache_destroy(&cache_);
    ia_model_destroy(&model_);
    ia_context_destroy(&context_);
  }
  EXPECT_EQ(nullptr, context_);
  EXPECT_EQ(nullptr, model_);
}

TEST_F(CApi, WrongSizesAreNamed) {
  std::vector<float> logits(kVocab);
  const std::vector<int32_t> ids = prompt(4);
  const auto run = [&](size_t count, ia_logits which, size_t size) {
    return ia_forward(model_, cache_, ids.data(), count, which, logits.data(), size, nullptr);
  };
  EXPECT_EQ(IA_INVALID_ARGUMENT, run(0, IA_LOGITS_LAST, kVocab));
  EXPECT_EQ(IA_INVALID_ARGUMENT, run(1, IA_LOGITS_LAST, kVocab - 1));
  EXPECT_TRUE(last_error_has("room for 95 floats")) << ia_last_error();
  EXPECT_EQ(IA_INVALID_ARGUMENT, run(2, IA_LOGITS_ALL, kVocab));
  EXPECT_EQ(IA_INVALID_ARGUMENT, run(1, 7, kVocab));
  for (const int32_t bad : {-1, 96, std::numeric_limits<int32_t>::min()}) {
    EXPECT_EQ(IA_INVALID_ARGUMENT, ia_forward(model_, cache_, &bad, 1, IA_LOGITS_LAST, logits.data(), kVocab, nullptr));
    EXPECT_TRUE(last_error_has(std::to_string(bad).c_str()));
  }
  const std::vector<int32_t> many = prompt(SmallIatt::kContext + 1);
  EXPECT_EQ(IA_CONTEXT_OVERFLOW, forward(cache_, many, &logits));
  EXPECT_EQ(0u, length());
  ia_cache* other = nullptr;
  ASSERT_EQ(IA_OK, ia_cache_create(context_, 1, 2, 32, 64, &other));
  EXPECT_EQ(IA_INVALID_ARGUMENT, forward(other, prompt(1), &logits));
  ia_cache_destroy(&other);
  const ia::Context stranger(1);
  ia::Cache foreign(stranger, 2, 2, 32, 64);
  EXPECT_EQ(IA_INVALID_ARGUMENT, forward(foreign.get(), prompt(1), &logits));
  EXPECT_TRUE(last_error_has("another context")) << ia_last_error();
  EXPECT_EQ(IA_INVALID_ARGUMENT, ia_cache_create(context_, 1, 1, 17, 8, &other));
  EXPECT_EQ(IA_INVALID_ARGUMENT, ia_cache_create(context_, SIZE_MAX, SIZE_MAX, 16, 8, &other));
  EXPECT_EQ(IA_INVALID_ARGUMENT, ia_cache_truncate(cache_, 1));
  EXPECT_EQ(nullptr, other);
  float w[32] = {};
  ia_linear* linear = nullptr;
  for (const size_t columns : {size_t{0}, size_t{31}, SIZE_MAX / 32 * 32})
    EXPECT_EQ(IA_INVALID_ARGUMENT, ia_linear_create(context_, IA_W4G32, 1, columns, w, nullptr, &linear)) << columns;
  EXPECT_EQ(IA_INVALID_ARGUMENT, ia_linear_create(context_, 9, 1, 32, w, nullptr, &linear));
  EXPECT_EQ(IA_INVALID_ARGUMENT, ia_quantize(1, 12, w, reinterpret_cast<int8_t*>(w), w));
  EXPECT_EQ(IA_INVALID_ARGUMENT, ia_quantize(SIZE_MAX, 32, w, reinterpret_cast<int8_t*>(w), w));
}

TEST_F(CApi, OptionsOfUnknownSizeAreRefused) {
  ia_context_options options{};
  ia_context* context = nullptr;
  for (const size_t size : {size_t{0}, sizeof options + 1, SIZE_MAX}) {
    options.struct_size = size;
    EXPECT_EQ(IA_INVALID_ARGUMENT, ia_context_create(&options, &context)) << size;
  }
  options.struct_size = sizeof options;
  options.threads = -1;
  EXPECT_EQ(IA_INVALID_ARGUMENT, ia_context_create(&options, &context));
  options.threads = 0;
  options.cpu_count = 3;
  EXPECT_EQ(IA_INVALID_ARGUMENT, ia_context_create(&options, &context));
  const int cpu = 1 << 20;
  options.cpus = &cpu;
  options.cpu_count = 1;
  EXPECT_EQ(IA_INVALID_ARGUMENT, ia_context_create(&options, &context));
  EXPECT_TRUE(last_error_has("1048576")) << ia_last_error();
  // a caller built with an older, shorter struct
  ia_context_options old{};
  old.struct_size = offsetof(ia_context_options, allocator);
  ASSERT_EQ(IA_OK, ia_context_create(&old, &context));
  ia_context_destroy(&context);
}

TEST_F(CApi, CancellingAPrefillLeavesTheCache) {
  std::vector<float> logits, expected;
  ASSERT_EQ(IA_OK, forward(cache_, prompt(10), &logits));
  struct Seen {
    int calls = 0;
    uint64_t done = 0, total = 0;
  } seen;
  ia_callbacks callbacks{};
  callbacks.user = &seen;
  callbacks.progress = [](void* user, uint64_t done, uint64_t total) {
    auto* s = static_cast<Seen*>(user);
    s->done = done;
    s->total = total;
  };
  callbacks.cancel = [](void* user) { return ++static_cast<Seen*>(user)->calls == 3 ? 1 : 0; };
  EXPECT_EQ(IA_CANCELLED, forward(cache_, prompt(400), &logits, &callbacks));
  EXPECT_EQ(128u, seen.done);
  EXPECT_EQ(400u, seen.total);
  EXPECT_EQ(10u, length());
  ASSERT_EQ(IA_OK, forward(cache_, prompt(5), &logits));
  ia_cache* fresh = nullptr;
  ASSERT_EQ(IA_OK, ia_model_new_cache(model_, &fresh));
  std::vector<int32_t> ids = prompt(10);
  for (const int32_t id : prompt(5)) ids.push_back(id);
  ASSERT_EQ(IA_OK, forward(fresh, ids, &expected));
  EXPECT_EQ(expected, logits);
  callbacks.cancel = nullptr;
  ASSERT_EQ(IA_OK, ia_cache_truncate(fresh, 0));
  ASSERT_EQ(IA_OK, forward(fresh, prompt(300), &logits, &callbacks));
  EXPECT_EQ(300u, seen.done);
  ASSERT_EQ(IA_OK, ia_cache_truncate(fresh, 0));
  ASSERT_EQ(IA_OK, forward(fresh, prompt(300), &expected));
  EXPECT_EQ(expected, logits);
  ia_cache_destroy(&fresh);
}

TEST_F(CApi, OneModelServesTwoThreads) {
  std::vector<float> expected;
  ASSERT_EQ(IA_OK, forward(cache_, prompt(70), &expected));
  const auto serve = [&] {
    ia_cache* cache = nullptr;
    std::vector<float> logits;
    EXPECT_EQ(IA_OK, ia_model_new_cache(model_, &cache));
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(IA_OK, ia_cache_truncate(cache, 0));
      EXPECT_EQ(IA_OK, forward(cache, prompt(70), &logits));
      EXPECT_EQ(expected, logits);
      EXPECT_EQ(IA_INVALID_ARGUMENT, ia_cache_truncate(cache, 71));
      EXPECT_TRUE(last_error_has("71")) << ia_last_error();  // this thread's own text
    }
    ia_cache_destroy(&cache);
  };
  std::thread other(serve);
  serve();
  other.join();
}

// A second call on a cache in use is refused: the first holds still in its callback until that was seen.
TEST_F(CApi, ACacheServesOneCallAtATime) {
  struct Gate {
    std::atomic<bool> inside{false}, leave{false};
  } gate;
  ia_callbacks callbacks{};
  callbacks.user = &gate;
  callbacks.progress = [](void* user, uint64_t, uint64_t) {
    auto* g = static_cast<Gate*>(user);
    g->inside = true;
    while (!g->leave) std::this_thread::yield();
  };
  std::thread first([&] {
    std::vector<float> logits;
    EXPECT_EQ(IA_OK, forward(cache_, prompt(20), &logits, &callbacks));
  });
  while (!gate.inside) std::this_thread::yield();
  std::vector<float> logits;
  size_t tokens = 0;
  EXPECT_EQ(IA_BUSY, forward(cache_, prompt(1), &logits));
  EXPECT_EQ(IA_BUSY, ia_cache_truncate(cache_, 0));
  EXPECT_EQ(IA_BUSY, ia_cache_length(cache_, &tokens));
  gate.leave = true;
  first.join();
  EXPECT_EQ(20u, length());
}

struct Arena {
  std::atomic<size_t> held{0}, calls{0};
  size_t limit = SIZE_MAX;

  ia_allocator allocator() {
    return {[](void* user, size_t bytes, size_t alignment) -> void* {
              auto* arena = static_cast<Arena*>(user);
              if (arena->held + bytes > arena->limit) return nullptr;
              arena->held += bytes;
              ++arena->calls;
              return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
            },
            [](void* user, void* memory, size_t bytes) {
              static_cast<Arena*>(user)->held -= bytes;
              std::free(memory);
            },
            this};
  }
};

TEST_F(CApi, BuffersComeFromTheCallersAllocator) {
  Arena arena;
  ia_context_options options{};
  options.struct_size = sizeof options;
  options.allocator = arena.allocator();
  const auto own = std::make_unique<ia::Context>(options);
  auto model = std::make_unique<ia::Model>(*own, file_.path());
  auto cache = std::make_unique<ia::Cache>(model->new_cache());
  const std::vector<float> logits = model->forward(*cache, prompt(30));
  std::vector<float> expected;
  ASSERT_EQ(IA_OK, forward(cache_, prompt(30), &expected));
  EXPECT_EQ(expected, logits);
  EXPECT_GT(arena.held, 0u);
  arena.limit = arena.held;  // full: a fresh cache cannot grow
  try {
    ia::Cache more = model->new_cache();
    model->forward(more, prompt(1));
    FAIL() << "memory beyond the limit";
  } catch (const ia::Error& error) {
    EXPECT_EQ(IA_OUT_OF_MEMORY, error.status());
  }
  model.reset();
  cache.reset();
  EXPECT_EQ(0u, arena.held);
  options.allocator.release = nullptr;
  EXPECT_THROW(ia::Context{options}, ia::Error);
}

TEST_F(CApi, InfoTextsAndEnds) {
  ia_model_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(IA_OK, ia_model_get_info(model_, &info));
  EXPECT_EQ(kVocab, info.vocab_size);
  EXPECT_EQ(90u, info.token_count);
  EXPECT_EQ(SmallIatt::kContext, info.context);
  const char* text = nullptr;
  size_t bytes = 0;
  ASSERT_EQ(IA_OK, ia_model_text(model_, "tokenizer.json", &text, &bytes));
  EXPECT_EQ("\xc3\xa9\xf0\x9f\x98\x80", std::string(text, bytes));
  ASSERT_EQ(IA_OK, ia_model_text(model_, "chat_template.jinja", &text, &bytes));
  EXPECT_EQ("{{ messages }}", std::string(text, bytes));
  ASSERT_EQ(IA_OK, ia_model_text(model_, "nothing", &text, &bytes));
  EXPECT_EQ(nullptr, text);
  int end = 7;
  ASSERT_EQ(IA_OK, ia_model_is_end(model_, 2, &end));
  EXPECT_EQ(1, end);
  ASSERT_EQ(IA_OK, ia_model_is_end(model_, 3, &end));
  EXPECT_EQ(0, end);
  EXPECT_EQ(unsigned{IA_VERSION}, ia_version());
  EXPECT_STREQ("IA_BUSY", ia_status_name(IA_BUSY));
  EXPECT_STREQ("unknown status", ia_status_name(99));
  EXPECT_STREQ("portable", [] {
    const char* last = nullptr;
    for (size_t i = 0; const char* name = ia_runnable_isa(i); ++i) last = name;
    return last;
  }());
}

TEST_F(CApi, LoadErrorsHaveTheirStatus) {
  ia_model* model = nullptr;
  ia_model_options options{};
  options.struct_size = sizeof options;
  const auto load = [&](SmallIatt& file) { return ia_model_load(context_, file.path().c_str(), &options, &model); };
  EXPECT_EQ(IA_IO, ia_model_load(context_, "/nonexistent/model.iatt", &options, &model));
  EXPECT_TRUE(last_error_has("/nonexistent/model.iatt: No such file")) << ia_last_error();
  SmallIatt other([](const std::string& header) { return "{\"layout\":\"none\"" + header.substr(17); });
  EXPECT_EQ(IA_UNSUPPORTED_MODEL, load(other)) << ia_last_error();
  options.context = SmallIatt::kContext + 1;
  EXPECT_EQ(IA_INVALID_ARGUMENT, load(file_));
  options.context = 0;
  SmallIatt damaged;
  damaged.content()[100] ^= 1;
  EXPECT_EQ(IA_OK, load(damaged)) << ia_last_error();  // a start does not read the tensors
  ia_model_destroy(&model);
  options.verify = 1;
  EXPECT_EQ(IA_BAD_FILE, load(damaged));
  EXPECT_TRUE(last_error_has("is damaged (checksum)")) << ia_last_error();
  options.callbacks.cancel = [](void*) { return 1; };
  EXPECT_EQ(IA_CANCELLED, load(file_));
  EXPECT_EQ(nullptr, model);
  options.callbacks.cancel = nullptr;
  uint64_t seen[2] = {};
  options.callbacks.user = seen;
  options.callbacks.progress = [](void* user, uint64_t done, uint64_t total) {
    static_cast<uint64_t*>(user)[0] = done;
    static_cast<uint64_t*>(user)[1] = total;
  };
  EXPECT_EQ(IA_OK, load(file_)) << ia_last_error();
  EXPECT_GT(seen[0], 0u);
  EXPECT_EQ(seen[0], seen[1]);
  ia_model_destroy(&model);
}

TEST_F(CApi, SamplerRepeatsASeedAndRefusesNonsense) {
  std::vector<float> logits(40);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(i));
  ia_sampling options{};
  options.struct_size = sizeof options;
  options.temperature = 1.0;
  options.seed = 3;
  const auto draws = [&] {
    ia::Sampler sampler(options);
    std::vector<int32_t> out;
    for (int i = 0; i < 20; ++i) out.push_back(sampler.choose(logits.data(), logits.size()));
    return out;
  };
  const std::vector<int32_t> first = draws();
  EXPECT_EQ(first, draws());
  options.seed = 4;
  EXPECT_NE(first, draws());
  int32_t token = 0;
  ia::Sampler greedy;
  EXPECT_EQ(33, greedy.choose(logits.data(), logits.size()));
  EXPECT_EQ(IA_INVALID_ARGUMENT, ia_sampler_choose(greedy.get(), logits.data(), 0, &token));
  logits[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(IA_INVALID_ARGUMENT, ia_sampler_choose(greedy.get(), logits.data(), logits.size(), &token));
  options.temperature = -1;
  EXPECT_THROW(ia::Sampler{options}, ia::Error);
}

}  // namespace
}  // namespace intattention::testing
