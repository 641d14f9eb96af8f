// Time of the integer kernels of every table this CPU can run, on operands that fit L1 and L2, one thread.
//
// Each result is first compared with a dumb loop. Then calls of all tables are interleaved in rounds and the best
// round counts: on a shared machine the minimum is the number that means something. Cycles are of the clock that a
// chain of dependent additions shows between the rounds. "Of peak" relates to the ISA's own multiply loop on
// registers (peak.h), timed in the same rounds; above 100 % is work that zero chunks, or a cheaper exact
// product for small probabilities, save.
//
//   cmake -B build/bench -DINTATTENTION_BENCH=ON && cmake --build build/bench --target bench_kernels
//   build/bench/bench/native/bench_kernels [rounds [part of a name]]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "dispatch.h"
#include "packing.h"
#include "peak.h"
#include "reference.h"

namespace intattention::bench {
namespace {

std::mt19937 rng{20260601};

template <typename T>
std::vector<T> random_ints(size_t count, int low, int high) {
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(low + static_cast<int>(rng() % static_cast<uint32_t>(high - low + 1)));
  return values;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Hz: 4 dependent additions take 4 cycles (the compiler may not join them).
double clock_hz() {
  constexpr size_t kLoops = 200'000;
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const double start = now();
    uint64_t x = 1;
    for (size_t i = 0; i < kLoops; ++i) {
#if defined(__x86_64__)
      __asm__ volatile("add %0, %0\n\tadd %0, %0\n\tadd %0, %0\n\tadd %0, %0" : "+r"(x));
#else
      __asm__ volatile("add %0, %0, %0\n\tadd %0, %0, %0\n\tadd %0, %0, %0\n\tadd %0, %0, %0" : "+r"(x));
#endif
    }
    best = std::min(best, now() - start);
  }
  return 4.0 * kLoops / best;
}

// Seconds per call of one sample of about 100 us.
double sample(const std::function<void()>& call, size_t calls) {
  const double start = now();
  for (size_t i = 0; i < calls; ++i) call();
  return (now() - start) / static_cast<double>(calls);
}

size_t calls_per_sample(const std::function<void()>& call) {
  call();
  const double start = now();
  call();
  return std::max<size_t>(1, static_cast<size_t>(100e-6 / std::max(1e-8, now() - start)));
}

PeakProbe peak_of(const std::string& isa) {
#if defined(__x86_64__)
  if (isa == "avx2") return peak_avx2;
  if (isa == "avxvnni") return peak_avxvnni;
  if (isa == "avx512vnni") return peak_avx512vnni;
#endif
  return isa.empty() ? nullptr : nullptr;
}

// One operand set of one kernel: `prepare` returns the call for a table and checks its result first.
struct Case {
  std::string name;
  double work;       // MAC or logits per call
  const char* unit;  // "MAC" or "logit"
  std::function<std::function<void()>(const KernelTable&)> prepare;
};

[[noreturn]] void wrong(const KernelTable& table, const std::string& what) {
  std::fprintf(stderr, "error: %s of table %s differs from the dumb loop\n", what.c_str(), table.name);
  std::exit(1);
}

template <typename A, typename Gemm>
Case gemm_case(const std::string& name, size_t m, size_t n, size_t k, const std::vector<A>& a,
               Gemm KernelTable::* entry) {
  const auto b = random_ints<int8_t>(n * k, -127, 127);
  const auto prepare = [=](const KernelTable& table) -> std::function<void()> {
    const B8Layout layout{table.attention_inner, 8 * k};
    std::vector<int8_t> packed(pack_b8_bytes(n, layout) + 64);
    int8_t* aligned = packed.data() + (64 - reinterpret_cast<uintptr_t>(packed.data()) % 64) % 64;
    pack_b8(n, k, b.data(), k, layout, aligned);
    auto c = std::make_shared<std::vector<int32_t>>(m * n);
    auto held = std::make_shared<std::vector<int8_t>>(std::move(packed));
    const auto call = [=, gemm = table.*entry] {
      gemm(m, n, k, a.data(), k, aligned, 8 * k, c->data(), n);
      (void)held;
    };
    call();
    for (size_t i = 0; i < m; ++i)
      for (size_t j = 0; j < n; ++j)
        if ((*c)[i * n + j] != testing::dot_reference(k, a.data() + i * k, b.data() + j * k)) wrong(table, name);
    return call;
  };
  return {name, static_cast<double>(m * n * k), "MAC", prepare};
}

// E' of m rows: `zero_share` of the 8 x 16 tiles are zero. The distance to the maximum in the others is uniform up to
// 6.6 nats (flat), crowds towards it (peaked, as real rows do: few keys near the maximum), or is that of Gaussian
// logits of deviation 2.
enum class Logits { kFlat, kPeaked, kGaussian };

double distance(Logits logits) {
  static std::normal_distribution<double> gaussian(6.0, 2.0);
  if (logits == Logits::kGaussian) return std::max(0.0, gaussian(rng));
  const double u = static_cast<double>(rng() % 1000) * 1e-3;
  return 6.6 * (logits == Logits::kPeaked ? std::pow(u, 0.2) : u);
}

std::vector<uint8_t> probabilities(size_t m, size_t k, double zero_share, Logits logits) {
  std::vector<uint8_t> e(m * k);
  for (size_t i0 = 0; i0 < m; i0 += 8)
    for (size_t k0 = 0; k0 < k; k0 += 16) {
      if (static_cast<double>(rng() % 1000) < zero_share * 1000) continue;
      for (size_t i = i0; i < std::min(i0 + 8, m); ++i)
        for (size_t kk = k0; kk < k0 + 16; ++kk)
          e[i * k + kk] = static_cast<uint8_t>(std::lround(255.0 * std::exp(-distance(logits))));
    }
  return e;
}

Case softmax_case() {
  constexpr size_t kKeys = 256;
  testing::SoftmaxInput in;
  in.logits = random_ints<int32_t>(kKeys, -60000, 60000);
  in.key_ratio = random_ints<int16_t>(kKeys, 16000, 32767);
  in.log_scale = random_ints<int16_t>(kKeys, -300, 0);
  in.weight_low = random_ints<uint8_t>(kKeys, 0, 255);
  in.weight_high = random_ints<uint8_t>(kKeys, 16, 127);
  in.end = kKeys;
  in.narrow = 3;
  in.lshift = 1;
  in.factor = 20000;
  in.max = kNoMax;
  const auto prepare = [=](const KernelTable& table) -> std::function<void()> {
    auto probs = std::make_shared<std::vector<uint8_t>>(kKeys);
    auto scratch = std::make_shared<std::vector<int16_t>>(kKeys);
    auto row = std::make_shared<IndexSoftmaxRow>();
    const auto call = [=, softmax = table.index_softmax_s32u8] {
      *row = {in.begin, in.end, in.narrow, in.lshift, static_cast<int16_t>(in.factor), in.max, 0};
      const IndexSoftmaxKeys keys{in.key_ratio.data(), in.log_scale.data(), in.weight_low.data(),
                                  in.weight_high.data()};
      softmax(kKeys, in.logits.data(), &keys, row.get(), scratch->data(), probs->data());
    };
    call();
    const testing::SoftmaxOutput expected = testing::index_softmax_reference(in);
    if (row->max != expected.max || row->sum != expected.sum || *probs != expected.probs) wrong(table, "index_softmax");
    return call;
  };
  return {"index_softmax n=256", kKeys, "logit", prepare};
}

Case linear_case(size_t m, bool w8) {
  constexpr size_t kOut = 576, kIn = 576, kGroups = kIn / kGroup;
  const std::string name = std::string(w8 ? "gemm_w8a8" : "gemm_w4a8") + " m=" + std::to_string(m) + " n=576 k=576";
  testing::LinearReference linear{kOut, kIn, w8 ? 0 : 8, {}, {}, {}};
  const auto quants = random_ints<int8_t>(kOut * kIn, w8 ? -128 : 0, w8 ? 127 : 15);
  linear.q.assign(quants.begin(), quants.end());
  const auto scale = random_ints<uint16_t>(kOut * kGroups, 0x1c00, 0x2fff);
  for (uint16_t bits : scale) linear.d.push_back(testing::f16_reference(bits));
  std::vector<uint8_t> q;
  if (w8) {
    for (int value : linear.q) q.push_back(static_cast<uint8_t>(value));
  } else {
    for (size_t group = 0; group < kOut * kGroups; ++group)
      for (size_t j = 0; j < 16; ++j)
        q.push_back(static_cast<uint8_t>(linear.q[group * 32 + j] | linear.q[group * 32 + 16 + j] << 4));
  }
  const auto weights = std::make_shared<PackedWeights>(
      pack_weights({w8 ? WeightFormat::kW8G32 : WeightFormat::kW4G32, kOut, kIn, q.data(), scale.data(), nullptr}));
  std::vector<float> activations;
  for (int16_t value : random_ints<int16_t>(m * kIn, -3000, 3000))
    activations.push_back(static_cast<float>(value) * 1e-3f);
  const auto x = std::make_shared<testing::Quantized>(testing::quantize_activations_reference(activations));
  const auto prepare = [=](const KernelTable& table) -> std::function<void()> {
    auto y = std::make_shared<std::vector<float>>(m * kOut);
    const auto call = [=, w4a8 = table.gemm_w4a8, w8a8 = table.gemm_w8a8] {
      const QuantizedRows rows{x->q.data(), x->scale.data(), x->sum.data()};
      if (w8)
        w8a8(m, kOut, kIn, &rows, weights->data.data(), y->data(), kOut);
      else
        w4a8(m, kOut, kIn, &rows, weights->data.data(), false, y->data(), kOut);
    };
    call();
    for (size_t i = 0; i < m; ++i)
      for (size_t j = 0; j < kOut; ++j)
        if ((*y)[i * kOut + j] != linear(*x, i, j)) wrong(table, name);
    return call;
  };
  return {name, static_cast<double>(m * kOut * kIn), "MAC", prepare};
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (size_t m : {3, 32})
    for (size_t k : {64, 128})
      cases.push_back(gemm_case("gemm_s8s8s32 m=" + std::to_string(m) + " n=256 k=" + std::to_string(k), m, 256, k,
                                random_ints<int8_t>(m * k, -127, 127), &KernelTable::gemm_s8s8s32));
  for (size_t n : {64, 128}) {
    const std::string name = "gemm_u8s8s32 m=32 n=" + std::to_string(n) + " k=256 ";
    const auto add = [&](const char* kind, double zeros, Logits logits) {
      cases.push_back(
          gemm_case(name + kind, 32, n, 256, probabilities(32, 256, zeros, logits), &KernelTable::gemm_u8s8s32));
    };
    add("flat", 0.0, Logits::kFlat);
    add("gaussian", 0.0, Logits::kGaussian);
    add("peaked", 0.0, Logits::kPeaked);
    add("peaked, 60 % zero", 0.6, Logits::kPeaked);
  }
  cases.push_back(softmax_case());
  for (bool w8 : {false, true})
    for (size_t m : {1, 64}) cases.push_back(linear_case(m, w8));
  return cases;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown CPU";
}

struct Contender {
  const KernelTable* table;
  std::function<void()> call;
  size_t calls;
  double best = 1e9, best_peak = 1e9;  // seconds per call; seconds per MAC of the peak probe
};

void run(const Case& c, int rounds) {
  std::vector<Contender> contenders;
  for (const KernelTable* table : runnable_tables()) {
    std::function<void()> call = c.prepare(*table);
    const size_t calls = calls_per_sample(call);
    contenders.push_back({table, std::move(call), calls});
  }
  constexpr size_t kPeakLoops = 20'000;
  double hz = 0.0;
  for (int round = 0; round < rounds; ++round) {
    if (round % 8 == 0) hz = std::max(hz, clock_hz());
    for (Contender& one : contenders) {
      if (PeakProbe probe = peak_of(one.table->name); probe != nullptr && round % 4 == 0) {
        const double start = now();
        const double macs = probe(kPeakLoops);
        one.best_peak = std::min(one.best_peak, (now() - start) / macs);
      }
      one.best = std::min(one.best, sample(one.call, one.calls));
    }
  }
  for (const Contender& one : contenders) {
    const double per_second = c.work / one.best;
    std::printf("%-46s %-11s %8.2f G%s/s  ", c.name.c_str(), one.table->name, per_second * 1e-9, c.unit);
    if (std::strcmp(c.unit, "MAC") == 0)
      std::printf("%7.1f MAC/cycle", per_second / hz);
    else
      std::printf("%7.3f cycles/%s", hz / per_second, c.unit);
    if (std::strcmp(c.unit, "MAC") == 0 && one.best_peak < 1e9)
      std::printf("  %5.1f %% of peak", per_second * one.best_peak * 100);
    std::printf("\n");
  }
}

}  // namespace
}  // namespace intattention::bench

int main(int argc, char** argv) {
  using namespace intattention::bench;
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 200;
  const std::string filter = argc > 2 ? argv[2] : "";
  std::printf("%s; compiler %s; commit %s; clock %.2f GHz; best of %d\n", cpu_name().c_str(), __VERSION__, BENCH_COMMIT,
              clock_hz() * 1e-9, rounds);
  for (const Case& c : all_cases())
    if (c.name.find(filter) != std::string::npos) run(c, rounds);
  return 0;
}
