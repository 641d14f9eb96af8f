// CRC-32 as zlib, PNG and Ethernet compute it (polynomial 0xEDB88320, reflected).
#pragma once

#include <cstddef>
#include <cstdint>

namespace intattention {

// Of `bytes` bytes at `data`; `crc` is the checksum of what came before.
uint32_t crc32(const uint8_t* data, size_t bytes, uint32_t crc = 0);

}  // namespace intattention
