// Packed model files through the C API: loaded or refused, and what loads runs. Files are tried as they are, and if
// refused once more with the two checksums of the frame made right, since a fuzzer does not find a CRC.
//
//   mkdir -p fuzz/found/iatt_native && build/fuzz/fuzz/native/fuzz_iatt fuzz/found/iatt_native fuzz/corpus/iatt
//   -max_total_time=600
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "crc32.h"
#include "fuzz_input.h"
#include "intattention.hpp"

namespace {

using Bytes = std::vector<uint8_t>;
constexpr size_t kPrelude = 64;  // intattention/framed_file.py draws it

bool is_one_of(ia_status status, std::initializer_list<ia_status> expected) {
  for (const ia_status one : expected)
    if (status == one) return true;
  return false;
}

void expect(ia_status status, std::initializer_list<ia_status> expected) {
  if (is_one_of(status, expected)) return;
  std::fprintf(stderr, "%s: %s\n", ia_status_name(status), ia_last_error());
  std::abort();
}

// A fresh file each time: the one before may still be mapped.
class File {
 public:
  explicit File(const Bytes& content) {
    const int fd = mkstemp(path_);
    if (fd < 0) std::abort();
    std::FILE* file = fdopen(fd, "wb");
    if (std::fwrite(content.data(), 1, content.size(), file) != content.size()) std::abort();
    std::fclose(file);
  }
  ~File() { unlink(path_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const char* path() const { return path_; }

 private:
  char path_[32] = "/dev/shm/fuzz_iatt_XXXXXX";
};

ia_context* context() {
  static ia_context* const shared = [] {
    ia_context_options options{};
    options.struct_size = sizeof options;
    options.threads = 1;
    ia_context* made = nullptr;
    expect(ia_context_create(&options, &made), {IA_OK});
    return made;
  }();
  return shared;
}

void use(const ia_model* model) {
  ia_model_info info{};
  info.struct_size = sizeof info;
  expect(ia_model_get_info(model, &info), {IA_OK});
  const char* text = nullptr;
  size_t bytes = 0;
  for (const char* name : {"tokenizer.json", "chat_template.jinja", "absent"})
    expect(ia_model_text(model, name, &text, &bytes), {IA_OK});
  int is_end = 0;
  expect(ia_model_is_end(model, 0, &is_end), {IA_OK});
  ia_cache* cache = nullptr;
  expect(ia_model_new_cache(model, &cache), {IA_OK, IA_INVALID_ARGUMENT});
  if (cache == nullptr) return;
  const int32_t ids[] = {0, static_cast<int32_t>(info.vocab_size - 1), 0};
  std::vector<float> logits(info.vocab_size);
  const ia_status status = ia_forward(model, cache, ids, 3, IA_LOGITS_LAST, logits.data(), logits.size(), nullptr);
  expect(status, {IA_OK, IA_NUMERIC, IA_CONTEXT_OVERFLOW});
  ia_cache_destroy(&cache);
}

// Whether it loads with its checksums compared; used in any case if it loads without.
bool loads(const Bytes& content) {
  const File file(content);
  ia_status status = IA_OK;
  for (const int verify : {1, 0}) {
    ia_model_options options{};
    options.struct_size = sizeof options;
    options.verify = verify;
    ia_model* model = nullptr;
    status = ia_model_load(context(), file.path(), &options, &model);
    expect(status, {IA_OK, IA_BAD_FILE, IA_UNSUPPORTED_MODEL});
    if (status != IA_OK) continue;
    use(model);
    ia_model_destroy(&model);
    return verify == 1;
  }
  return false;
}

template <typename T>
T load(const Bytes& bytes, size_t at) {
  T value;
  std::memcpy(&value, &bytes[at], sizeof value);
  return value;
}

void put(Bytes* bytes, size_t at, const void* value, size_t size) { std::memcpy(&(*bytes)[at], value, size); }

// The header begins where the prelude says, or at the last multiple of 64.
Bytes repaired(Bytes bytes) {
  uint64_t offset = load<uint64_t>(bytes, 16);
  if (offset < kPrelude || offset > bytes.size()) offset = bytes.size() / 64 * 64;
  const uint64_t size = bytes.size() - offset;
  const uint32_t header = intattention::crc32(bytes.data() + offset, size);
  put(&bytes, 12, &header, 4);
  put(&bytes, 16, &offset, 8);
  put(&bytes, 24, &size, 8);
  const uint32_t prelude = intattention::crc32(bytes.data(), 60);
  put(&bytes, 60, &prelude, 4);
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes content(data, data + size);
  if (!loads(content) && size >= kPrelude) loads(repaired(content));
  return 0;
}
