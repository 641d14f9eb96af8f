#include "crc32.h"

#include <array>

namespace intattention {
namespace {

// kTables[i][b]: what byte b contributes when i more bytes of its group of 8 follow.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0u);
    tables[0][byte] = crc;
  }
  for (size_t i = 1; i < tables.size(); ++i)
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[i - 1][byte];
      tables[i][byte] = before >> 8 ^ tables[0][before & 0xff];
    }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

uint32_t crc32(const uint8_t* data, size_t bytes, uint32_t crc) {
  crc = ~crc;
  for (; bytes >= 8; bytes -= 8, data += 8) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < 8; ++i) next ^= kTables[7 - i][i < 4 ? (data[i] ^ crc >> 8 * i) & 0xff : data[i]];
    crc = next;
  }
  for (; bytes > 0; --bytes, ++data) crc = crc >> 8 ^ kTables[0][(crc ^ *data) & 0xff];
  return ~crc;
}

}  // namespace intattention
