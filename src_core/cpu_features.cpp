#include "cpu_features.h"

#include <algorithm>
#include <fstream>
#include <thread>

#include "kernel_table.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <cpuid.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif

namespace intattention {
namespace {

#if defined(__x86_64__) || defined(_M_X64)

// XCR0 says which register states the OS saves: bits 1,2 (SSE, AVX), 5..7 (opmask, ZMM).
uint64_t xcr0() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

uint32_t detect() {
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  const bool osxsave = c & (1u << 27), avx = c & (1u << 28), f16c = c & (1u << 29);
  if (!osxsave || !avx || (xcr0() & 0x06) != 0x06) return 0;
  uint32_t features = f16c ? uint32_t{kFeatureF16c} : 0;
  if (c & (1u << 12)) features |= kFeatureFma;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return features;
  if (b & (1u << 5)) features |= kFeatureAvx2;
  const bool zmm = (xcr0() & 0xe0) == 0xe0;
  if (zmm && (b & (1u << 16))) features |= kFeatureAvx512F;
  const bool avx512 = (b & (1u << 16)) && (b & (1u << 30)) && (b & (1u << 31));  // F, BW, VL
  if (zmm && avx512 && (c & (1u << 11))) features |= kFeatureAvx512Vnni;
  const uint32_t max_subleaf = a;
  if (max_subleaf >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 4))) features |= kFeatureAvxVnni;
  return features;
}

#elif defined(__APPLE__)

bool sysctl_flag(const char* name) {
  int value = 0;
  size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}

uint32_t detect() {
  uint32_t features = kFeatureNeon;
  if (sysctl_flag("hw.optional.arm.FEAT_DotProd")) features |= kFeatureDotprod;
  if (sysctl_flag("hw.optional.arm.FEAT_I8MM")) features |= kFeatureI8mm;
  if (sysctl_flag("hw.optional.arm.FEAT_FP16")) features |= kFeatureFp16;
  return features;
}

#elif defined(__aarch64__)

// Bit numbers of the Linux arm64 ABI (arch/arm64/include/uapi/asm/hwcap.h).
constexpr unsigned long kHwcapAsimdHp = 1ul << 10;
constexpr unsigned long kHwcapAsimdDp = 1ul << 20;
constexpr unsigned long kHwcap2I8mm = 1ul << 13;

uint32_t detect() {
  uint32_t features = kFeatureNeon;
  const unsigned long hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
  if (hwcap & kHwcapAsimdDp) features |= kFeatureDotprod;
  if (hwcap & kHwcapAsimdHp) features |= kFeatureFp16;
  if (hwcap2 & kHwcap2I8mm) features |= kFeatureI8mm;
  return features;
}

#else
uint32_t detect() { return 0; }
#endif

long read_number(const std::string& path) {
  std::ifstream file(path);
  long value = -1;
  return file >> value ? value : -1;
}

}  // namespace

uint32_t cpu_features() {
  static const uint32_t features = detect();
  return features;
}

std::vector<std::string> cpu_feature_names(uint32_t features) {
  static constexpr struct {
    CpuFeature bit;
    const char* name;
  } kNames[] = {{kFeatureNeon, "neon"},
                {kFeatureDotprod, "dotprod"},
                {kFeatureI8mm, "i8mm"},
                {kFeatureFp16, "fp16"},
                {kFeatureAvx2, "avx2"},
                {kFeatureF16c, "f16c"},
                {kFeatureAvx512Vnni, "avx512vnni"},
                {kFeatureAvxVnni, "avxvnni"},
                {kFeatureFma, "fma"},
                {kFeatureAvx512F, "avx512f"}};
  std::vector<std::string> names;
  for (const auto& entry : kNames)
    if (features & entry.bit) names.emplace_back(entry.name);
  return names;
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
#endif
  return cpus;
}

std::vector<int> performance_cpus() {
  std::vector<int> cpus = allowed_cpus();
  for (const char* leaf : {"/cpu_capacity", "/cpufreq/cpuinfo_max_freq"}) {
    std::vector<long> speed;
    for (int cpu : cpus) speed.push_back(read_number("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + leaf));
    if (speed.empty() || *std::min_element(speed.begin(), speed.end()) < 0) continue;
    const long best = *std::max_element(speed.begin(), speed.end());
    std::vector<int> fastest;
    // Cores of one cluster can differ by a few per cent (binning, boost); an A55 is at a third of an A76.
    for (size_t i = 0; i < cpus.size(); ++i)
      if (speed[i] * 10 >= best * 8) fastest.push_back(cpus[i]);
    return fastest;
  }
  return cpus;
}

int default_thread_count() {
#if defined(__APPLE__)
  int value = 0;
  size_t size = sizeof value;
  if (sysctlbyname("hw.perflevel0.physicalcpu", &value, &size, nullptr, 0) == 0 && value > 0) return value;
#endif
  const int fastest = static_cast<int>(performance_cpus().size());
  return fastest > 0 ? fastest : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace intattention
