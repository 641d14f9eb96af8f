// The fixture of the C API's tests: a context, a small model and a cache of it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "intattention.h"
#include "intattention.hpp"
#include "small_iatt.h"

namespace intattention::testing {

inline constexpr size_t kVocab = SmallIatt::kVocab;

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

inline bool last_error_has(const char* words) { return std::string(ia_last_error()).find(words) != std::string::npos; }

}  // namespace intattention::testing
