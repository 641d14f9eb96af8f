// The C API abused: null and wrong handles, wrong sizes and options. Runs under ASan and TSan.
#include <cstddef>
#include <limits>

#include "c_api_case.h"

namespace intattention::testing {
namespace {

// A handle of one kind where another belongs: what a foreign function interface without types lets through.
template <typename To, typename From>
To* disguised(From* handle) {
  return reinterpret_cast<To*>(handle);
}

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

}  // namespace
}  // namespace intattention::testing
