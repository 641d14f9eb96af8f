// Models, caches and samplers through the C API: cancelling, two threads, the caller's memory, errors of loading.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>

#include "c_api_case.h"

namespace intattention::testing {
namespace {

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

// Found by fuzz/native/fuzz_c_api.cpp: 1e39 is infinity as a float, and no probability can be told from two of them.
TEST_F(CApi, PenaltyBeyondFloatChoosesOneOfTheLogits) {
  ia_sampling options{};
  options.struct_size = sizeof options;
  options.temperature = 1.0;
  const int32_t seen[] = {0, 1};
  const auto choose = [&](double penalty, std::vector<float> logits) {
    options.repetition_penalty = penalty;
    ia::Sampler sampler(options);
    EXPECT_EQ(IA_OK, ia_sampler_see(sampler.get(), seen, 2));
    return sampler.choose(logits.data(), logits.size());
  };
  const float big = std::numeric_limits<float>::max();
  EXPECT_EQ(0, choose(1e-6, {1e33f, 1e32f, 0.0f}));
  EXPECT_EQ(2, choose(1e6, {-big, -big, -1e33f}));
  EXPECT_EQ(1, choose(1e6, {-HUGE_VALF, -big, -HUGE_VALF}));
  for (const double penalty : {1e-300, 9e-7, 1.1e6, -1.0}) {
    options.repetition_penalty = penalty;
    ia_sampler* sampler = nullptr;
    EXPECT_EQ(IA_INVALID_ARGUMENT, ia_sampler_create(&options, &sampler));
    EXPECT_TRUE(last_error_has("repetition_penalty is ")) << ia_last_error();
  }
}

}  // namespace
}  // namespace intattention::testing
