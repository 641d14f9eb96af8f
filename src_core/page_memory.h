// Zero-filled memory straight from the operating system, for large blocks.
//
// Why not operator new: glibc moves its threshold for mapping up to 32 MiB as blocks are released, after which KV
// blocks and scratch of a few MiB live in a heap that is not given back; and it has 4 KB pages, which cost a read of
// weights a fifth of its speed or more (Zen 5, 2 threads, plain loads: 31 GB/s, some allocations 9; in huge pages 38).
#pragma once

#include <cstddef>

namespace intattention {

constexpr size_t kPageMemoryBytes = size_t{1} << 20;  // from here on the two system calls do not count
constexpr size_t kHugePage = size_t{1} << 21;         // of x86-64 and of aarch64 with 4 KB pages

// At an address that is a multiple of the page size, for kHugePage bytes and more of kHugePage. Null: no memory.
void* map_pages(size_t bytes);
void unmap_pages(void* memory, size_t bytes);  // `bytes` as given to map_pages()

}  // namespace intattention
