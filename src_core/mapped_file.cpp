#include "mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "error.h"

namespace intattention {
namespace {

[[noreturn]] void fail(const std::string& path) {
  throw FileError(message(path, ": ", std::generic_category().message(errno)));
}

struct Descriptor {
  int fd;
  ~Descriptor() { close(fd); }
};

}  // namespace

SharedBytes map_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(path);
  const Descriptor closing{fd};
  struct stat info{};
  if (fstat(fd, &info) != 0) fail(path);
  if (!S_ISREG(info.st_mode)) throw FileError(message(path, ": not a file"));
  const auto bytes = static_cast<size_t>(info.st_size);
  if (bytes == 0) throw ModelFileError(message(path, ": the file is empty"));
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) fail(path);
  const std::shared_ptr<void> owner(data, [bytes](void* mapped) { munmap(mapped, bytes); });
  return {static_cast<const uint8_t*>(data), bytes, owner};
}

}  // namespace intattention
