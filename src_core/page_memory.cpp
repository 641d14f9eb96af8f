#include "page_memory.h"

#include <sys/mman.h>

#include <cstdint>

namespace intattention {
namespace {

constexpr size_t kLargestPage = size_t{1} << 16;  // of aarch64 kernels; x86-64 has 4 KB, macOS 16 KB

size_t whole_pages(size_t bytes) { return (bytes + kLargestPage - 1) / kLargestPage * kLargestPage; }

uint8_t* map(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<uint8_t*>(memory);
}

// The kernel aligns to its small pages: map more and give back what lies around.
uint8_t* map_aligned(size_t bytes, size_t alignment) {
  uint8_t* const start = map(bytes + alignment);
  if (start == nullptr) return nullptr;
  const size_t before = (alignment - reinterpret_cast<uintptr_t>(start) % alignment) % alignment;
  if (before > 0) munmap(start, before);
  if (before < alignment) munmap(start + before + bytes, alignment - before);
  return start + before;
}

}  // namespace

void* map_pages(size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  if (bytes < kHugePage) return map(whole_pages(bytes));
  uint8_t* const memory = map_aligned(whole_pages(bytes), kHugePage);
#ifdef MADV_HUGEPAGE  // many systems give huge pages only to who asks; a refusal leaves small ones
  if (memory != nullptr) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
  return memory;
}

void unmap_pages(void* memory, size_t bytes) { munmap(memory, whole_pages(bytes)); }

}  // namespace intattention
