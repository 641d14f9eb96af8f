// The C++ reader of packed files refuses what the Python one refuses, and never crashes.
#include "iatt_file.h"

#include <gtest/gtest.h>

#include "error.h"
#include "iatt_model.h"
#include "json_reader.h"
#include "small_iatt.h"

namespace intattention::testing {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(std::string::npos, at) << from;
  return text.replace(at, from.size(), to);
}

SmallIatt::Edit replacing(const std::string& from, const std::string& to) {
  return [=](const std::string& text) { return replaced(text, from, to); };
}

// What loading throws, "" if nothing.
std::string problem(SmallIatt& file) {
  try {
    const IattFile opened(file.path());
    opened.verify(nullptr);
    load_iatt_model(opened, 0, std::make_shared<ThreadPool>(1, std::vector<int>{}));
  } catch (const ModelFileError& error) {
    return error.what();
  } catch (const UnsupportedModel& error) {
    return error.what();
  }
  return "";
}

TEST(IattFile, LoadsAndKnowsItsTexts) {
  SmallIatt file;
  EXPECT_EQ("", problem(file));
  EXPECT_THROW(IattFile("/nonexistent/file.iatt"), FileError);
  EXPECT_THROW(IattFile("/tmp"), FileError);
}

TEST(IattFile, EveryTruncationIsNoticed) {
  SmallIatt file;
  const std::string whole = file.content();
  for (size_t length = 0; length < whole.size(); length += length < 130 ? 1 : 997) {
    file.content() = whole.substr(0, length);
    EXPECT_NE("", problem(file)) << length;
  }
  file.content() = whole + '\0';
  EXPECT_NE("", problem(file));
}

TEST(IattFile, EveryDamagedByteIsNoticed) {
  SmallIatt file;
  const std::string whole = file.content();
  for (size_t at = 0; at < whole.size(); at += at < 64 ? 1 : 487) {
    file.content() = whole;
    file.content()[at] = static_cast<char>(file.content()[at] ^ 1 << at % 8);
    // zeros between tensors belong to no checksum
    if (at >= 64 && whole[at] == 0 && problem(file).empty()) continue;
    EXPECT_NE("", problem(file)) << at;
  }
}

TEST(IattFile, HostileHeadersAreRefused) {
  const struct {
    const char *from, *to, *words;
  } cases[] = {
      {"r8k4p", "r8k8x", "packed as 'r8k8x'"},
      {"{\"layout\":\"r8k4p\",", "{", "layout or the tensors are missing"},
      {"{\"layout\"", "{\"layout\":\"r8k4p\",\"layout\"", "a key occurs twice"},
      {"\"offset\":64", "\"offset\":0", "offset 0, expected 64"},
      {"\"offset\":64", "\"offset\":64.0", "expected an integer"},
      {"\"offset\":64", "\"offset\":-64", "expected an integer"},
      {"\"offset\":64", "\"offset\":18446744073709551616", "expected an integer"},
      {"\"shape\":[96,64]", "\"shape\":[9223372036854775808,64]", "expected 1 to"},
      {"\"shape\":[96,64]", "\"shape\":[0,64]", "expected 1 to"},
      {"\"shape\":[96,64]", "\"shape\":[]", "dimensions"},
      {"\"shape\":[96,64]", "\"shape\":[96,96]", "bytes, expected"},
      {"\"format\":\"w4g32a\"", "\"format\":\"w9\"", "w9"},
      {"\"crc32\":", "\"crc33\":", "is missing"},
      {"\"name\":\"norm\"", "\"name\":\"embed\"", "occurs twice"},
      {"\"name\":\"norm\"", "\"name\":\"other\"", "norm is missing"},
      {"\"sections\":[{\"name\"", "\"sections\":[{\"nime\"", "is missing"},
      {"\"nbytes\":14", "\"nbytes\":140", "reaches into the header"},
      {"\\ud83d\\ude00", "\\ud83d", "lone surrogate"},
      {"\\ud83d\\ude00", "\\ude00", "lone surrogate"},
      {"[1.5,", "[01.5,", "begins with 0"},
      {"[1.5,", "[NaN,", "no valid JSON"},
      {"\\u00e9", "\x01", "control character"},
      {"\\u00e9", "\xed\xa0\x80", "no UTF-8"},
      {"\\u00e9", "\xc0\x80", "no UTF-8"},
      {"\\u00e9", "\xf5\x80\x80\x80", "no UTF-8"},
  };
  for (const auto& c : cases) {
    SmallIatt file(replacing(c.from, c.to));
    EXPECT_NE(std::string::npos, problem(file).find(c.words)) << c.to << ": " << problem(file);
  }
  SmallIatt newer;
  newer.content()[8] = 3;
  EXPECT_NE(std::string::npos, problem(newer).find("version 3, this version reads 1 to 2")) << problem(newer);
  SmallIatt gone([](const std::string&) { return std::string(); });
  EXPECT_NE("", problem(gone));
  SmallIatt deep([](const std::string&) { return std::string(100000, '['); });
  EXPECT_NE(std::string::npos, problem(deep).find("no valid JSON"));
  SmallIatt nested(replacing("[1.5,", std::string(5000, '[') + std::string(5000, ']') + ",[1.5,"));
  EXPECT_NE(std::string::npos, problem(nested).find("nested deeper")) << problem(nested);
}

TEST(IattFile, HostileDescriptionsAreRefused) {
  const struct {
    const char *from, *to, *words;
  } cases[] = {
      {"\"head_dim\":32", "\"head_dim\":48", "expected"},
      {"\"head_dim\":32", "\"heed_dim\":32", "field head_dim is missing"},
      {"\"num_hidden_layers\":2", "\"num_hidden_layers\":3", "2 layers given"},
      {"\"token_count\":90", "\"token_count\":97", "97 tokens"},
      {"\"end_ids\":[1,2]", "\"end_ids\":[4294967296]", "31 bits"},
      {"\"rope_theta\":10000.0", "\"rope_theta\":1e999", "not finite"},
      {"\"embed_tokens\":\"embed\"", "\"embed_tokens\":\"norm\"", "1 dimensions"},
      {"\"embed_tokens\":\"embed\"", "\"embed_tokens\":null", "is missing"},
      {"\"qk_scale\":[]", "\"qk_scale\":[1e39]", "exceeds float32"},
      {"\"qk_scale\":[]", "\"qk_scale\":[3]", "qk_scale"},
      {"\"qkv_proj\":[", "\"qkv_proj\":[\"embed\",", "4 parts"},
  };
  for (const auto& c : cases) {
    SmallIatt file(nullptr, replacing(c.from, c.to));
    EXPECT_NE(std::string::npos, problem(file).find(c.words)) << c.to << ": " << problem(file);
  }
  SmallIatt without(replacing("intattention.decoder.json", "intattention.decoder.jso_"));
  EXPECT_NE(std::string::npos, problem(without).find("pack the original model again")) << problem(without);
}

TEST(IattFile, RandomlyChangedHeadersNeverCrash) {
  std::mt19937 rng(9);
  const auto scramble = [&](std::string text) {
    for (int i = 0; i < 3; ++i) text[rng() % text.size()] = static_cast<char>(32 + rng() % 95);
    return text;
  };
  size_t refused = 0;
  for (int round = 0; round < 150; ++round) {
    SmallIatt file(round % 2 == 0 ? scramble : SmallIatt::Edit(), round % 2 == 1 ? scramble : SmallIatt::Edit());
    refused += !problem(file).empty();
  }
  EXPECT_GT(refused, 100u);
}

TEST(IattFile, AnotherContextThanPackedIsRefused) {
  SmallIatt file;
  const IattFile opened(file.path());
  const auto pool = std::make_shared<ThreadPool>(1, std::vector<int>{});
  EXPECT_EQ(100u, load_iatt_model(opened, 100, pool).context);
  EXPECT_THROW(load_iatt_model(opened, 513, pool), InvalidArgument);
}

TEST(JsonReader, NumbersAreReadExactly) {
  JsonReader json("[0.1, -0, 1e-5, 2.2250738585072014e-308, 123456789012345678]");
  EXPECT_EQ((std::vector<double>{0.1, 0.0, 1e-5, 2.2250738585072014e-308, 123456789012345678.0}), json.doubles());
  json.end();
}

}  // namespace
}  // namespace intattention::testing
