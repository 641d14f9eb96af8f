// The fixture of every kernel check: one instance per built table; a table this CPU cannot run shows up
// as skipped. Also the pieces the checks share: seeded random data and bit comparison of floats.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "dispatch.h"

namespace intattention::testing {

// Names of the tables that ran at least one check; main() prints them.
std::vector<std::string>& covered_isas();

// Seeded random data.
struct Random {
  std::mt19937 rng{20260601};
  // Uniform in [low, high].
  int random_int(int low, int high) {
    const auto span = static_cast<uint64_t>(int64_t{high} - low + 1);
    return static_cast<int>(low + static_cast<int64_t>(rng() % span));
  }
  float random_float(float low, float high) { return low + (high - low) * (static_cast<float>(rng() >> 8) * 0x1p-24f); }
  template <typename T>
  std::vector<T> random_ints(size_t count, int low, int high) {
    std::vector<T> values(count);
    for (T& value : values) value = static_cast<T>(random_int(low, high));
    return values;
  }
  std::vector<float> random_floats(size_t count, float low, float high) {
    std::vector<float> values(count);
    for (float& value : values) value = random_float(low, high);
    return values;
  }
};

class KernelTest : public ::testing::TestWithParam<const KernelTable*>, protected Random {
 protected:
  void SetUp() override;  // skips if the CPU lacks the table's features
  const KernelTable& table() const { return *GetParam(); }
};

std::string table_name(const ::testing::TestParamInfo<const KernelTable*>& info);

#define INTATTENTION_ON_EVERY_TABLE(fixture) \
  INSTANTIATE_TEST_SUITE_P(Isa, fixture, ::testing::ValuesIn(intattention::built_tables()), table_name)

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Equal bits; all NaNs count as one.
inline bool same_float(float a, float b) { return (a != a && b != b) || bits_of(a) == bits_of(b); }

}  // namespace intattention::testing
