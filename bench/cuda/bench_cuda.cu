// Speed of the CUDA back end: the ceilings of the device, every linear of a model against them, the decode step at
// several depths, prefill, and the scheme of seed_scheme.h on the same shapes. Weights are synthetic.
//
//   bench_cuda [0.5b|1.5b|7b|14b] [bandwidth] [gemv] [seed] [step] [prefill] [ablation]       default: 7b and all
//
// One line of JSON per measurement on stdout; a table on stderr.
#include <chrono>
#include <cstdio>
#include <set>

#include "available.h"
#include "device_decoder.h"
#include "launch.h"
#include "seed_scheme.h"
#include "synthetic.h"
#include "timing.h"

namespace intattention::bench {
namespace {

using cuda::DeviceDecoder;
using cuda::DeviceRows;
using cuda::WeightView;

struct Ceilings {
  double read, copy;  // bytes per second
};

struct Matrix {
  const char* name;
  WeightFormat format;
  size_t rows, k;
  bool swiglu;

  size_t chunks() const { return (k / kGroup + 3) / 4; }
  size_t tiles() const { return (rows + 31) / 32; }
  size_t bytes() const { return tiles() * chunks() * cuda::chunk_bytes(format); }
};

std::vector<Matrix> matrices(const DecoderConfig& c) {
  const size_t h = c.hidden_size, q = c.num_attention_heads * c.head_dim;
  constexpr WeightFormat f = WeightFormat::kW4G32;
  return {
      {"qkv", f, q + 2 * c.num_key_value_heads * c.head_dim, h, false}, {"o", f, h, q, false},
      {"gate_up+swiglu", f, 2 * c.intermediate_size, h, true},          {"down", f, h, c.intermediate_size, false},
      {"lm_head w8g32", WeightFormat::kW8G32, c.vocab_size, h, false},  {"lm_head w4g32", f, c.vocab_size, h, false}};
}

// Enough copies that none is in L2 when its turn comes again.
int copies_of(size_t bytes) {
  return static_cast<int>(std::max<size_t>(2, 5 * cuda::device_facts().l2_bytes / bytes + 1));
}

void report(const char* kind, const char* name, const Times& t, double bytes, const Ceilings& top) {
  std::printf(
      "{\"kind\": \"%s\", \"name\": \"%s\", \"us\": %.2f, \"us_p95\": %.2f, \"bytes\": %.0f, \"gb_s\": %.0f, "
      "\"of_read\": %.3f}\n",
      kind, name, t.median * 1e6, t.p95 * 1e6, bytes, bytes / t.median * 1e-9, bytes / t.median / top.read);
  std::fprintf(stderr, "%-10s %-20s %9.2f us %7.0f GB/s %5.1f %% of read\n", kind, name, t.median * 1e6,
               bytes / t.median * 1e-9, 100 * bytes / t.median / top.read);
}

struct Rows {
  DeviceBuffer q, scale, sum;
  explicit Rows(size_t values) : q(values), scale(values / 32 * 4), sum(values / 32 * 4) {
    fill_random(q.as<void>(), q.size(), 5);
    const std::vector<float> ones(values / 32, 0.01f);
    check(cudaMemcpy(scale.as<void>(), ones.data(), scale.size(), cudaMemcpyHostToDevice), "scales");
  }
  DeviceRows rows() const { return {q.as<int8_t>(), scale.as<float>(), sum.as<int32_t>()}; }
};

Times gemv(const Matrix& m, cudaStream_t stream, uint32_t tokens) {
  const int copies = copies_of(m.bytes());
  const DeviceBuffer data(m.bytes() * copies), y(tokens * m.rows * sizeof(float));
  fill_random(data.as<void>(), data.size(), 3);
  const Rows x(tokens * m.k), act(tokens * m.rows);
  const cuda::GemvScratch scratch;
  return time_device(stream, 20, 4 * copies, [&](int i) {
    const WeightView view{data.as<uint8_t>() + i % copies * m.bytes(),
                          m.format,
                          static_cast<uint32_t>(m.rows),
                          static_cast<uint32_t>(m.k),
                          static_cast<uint32_t>(m.k / kGroup),
                          static_cast<uint32_t>(m.chunks()),
                          static_cast<uint32_t>(m.tiles())};
    if (m.swiglu)
      cuda::gemv_swiglu(view, tokens, x.rows(), act.rows(), scratch, stream);
    else
      cuda::gemv_wxa8(view, tokens, x.rows(), y.as<float>(), static_cast<uint32_t>(m.rows), scratch, stream);
  });
}

Times seed(const Matrix& m, cudaStream_t stream) {
  const size_t bytes = m.rows * m.k / 2;
  const int copies = copies_of(bytes);
  const DeviceBuffer data(bytes * copies), y(m.rows * 4), row_scale(m.rows * 4), x(m.k * 4), q(m.k), scale(4);
  fill_random(data.as<void>(), data.size(), 3);
  fill_random(x.as<void>(), x.size(), 4);
  return time_device(stream, 20, 4 * copies, [&](int i) {
    seed_quantize(static_cast<uint32_t>(m.k), x.as<float>(), q.as<int8_t>(), scale.as<float>(), stream);
    seed_gemv(static_cast<uint32_t>(m.rows), static_cast<uint32_t>(m.k), data.as<uint8_t>() + i % copies * bytes,
              row_scale.as<float>(), q.as<int8_t>(), scale.as<float>(), y.as<float>(), stream);
  });
}

// `own`: this back end's linears; `other`: those of the scheme of seed_scheme.h on the same shapes.
void bench_gemv(const Shape& shape, const Ceilings& top, cudaStream_t stream, bool own, bool other) {
  double own_sum = 0.0, other_sum = 0.0;
  for (const Matrix& m : matrices(shape.config)) {
    const bool counts = m.format == WeightFormat::kW4G32;
    if (own) {
      const Times t = gemv(m, stream, 1);
      report("gemv", m.name, t, static_cast<double>(m.bytes()), top);
      if (counts) own_sum += t.median;
    }
    if (other) {
      const Times t = seed(m, stream);
      report("seed", m.name, t, static_cast<double>(m.rows * m.k / 2), top);
      if (counts) other_sum += t.median;
    }
  }
  if (own && other) {
    std::fprintf(stderr, "w4g32 linears against the seed's scheme: %.2f x\n", other_sum / own_sum);
    std::printf("{\"kind\": \"gemv_against_seed\", \"ratio\": %.3f}\n", other_sum / own_sum);
  }
  if (!own) return;
  for (uint32_t tokens : {2u, 4u, 8u}) {
    const std::string name = "gate_up+swiglu x" + std::to_string(tokens);
    const Matrix m = matrices(shape.config)[2];
    report("gemv", name.c_str(), gemv(m, stream, tokens), static_cast<double>(m.bytes()), top);
  }
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Bytes that one step must read: weights, and the keys and values of `depth` tokens.
double step_bytes(const Shape& shape, size_t depth) {
  const DecoderConfig& c = shape.config;
  double bytes = 0.0;
  const std::vector<Matrix> all = matrices(c);
  for (size_t i = 0; i < 4; ++i) bytes += static_cast<double>(all[i].bytes() * c.num_hidden_layers);
  return bytes + static_cast<double>(all[4].bytes()) +
         static_cast<double>(c.num_hidden_layers * c.num_key_value_heads * depth * (2 * c.head_dim + 6));
}

Times step_time(DeviceDecoder& decoder, cuda::DeviceCache& cache, size_t depth) {
  constexpr int kSteps = 32;
  std::vector<int32_t> ids(kSteps);
  std::vector<double> seconds;
  for (int round = -2; round < 12; ++round) {
    cache.set_length(depth);
    const double begin = seconds_now();
    decoder.greedy(1, kSteps, decoder.config().vocab_size, cache, ids.data());
    if (round >= 0) seconds.push_back((seconds_now() - begin) / kSteps);
  }
  return summary(seconds);
}

void bench_steps(const Shape& shape, const Ceilings& top, DeviceDecoder& decoder, const char* label,
                 const std::vector<size_t>& depths, cuda::DeviceCache& cache) {
  for (size_t depth : depths) {
    const Times t = step_time(decoder, cache, depth);
    const std::string name = std::string(label) + " depth " + std::to_string(depth);
    report("step", name.c_str(), t, step_bytes(shape, depth), top);
    std::fprintf(stderr, "%40.1f tok/s\n", 1.0 / t.median);
  }
}

std::vector<int32_t> some_ids(size_t count, size_t vocab) {
  std::vector<int32_t> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>(i * 7919 % vocab);
  return ids;
}

void bench_prefill(const Shape& shape, DeviceDecoder& decoder) {
  const double macs = [&] {
    double sum = 0.0;
    const std::vector<Matrix> all = matrices(shape.config);
    for (size_t i = 0; i < 4; ++i) sum += static_cast<double>(all[i].rows * all[i].k * shape.config.num_hidden_layers);
    return sum;
  }();
  std::vector<float> logits(shape.config.vocab_size);
  for (size_t count : {size_t{128}, size_t{512}, size_t{2048}}) {
    const auto cache = decoder.new_cache(count);
    const std::vector<int32_t> ids = some_ids(count, shape.config.vocab_size);
    std::vector<double> seconds;
    for (int round = -1; round < 7; ++round) {
      cache->truncate(0);
      const double begin = seconds_now();
      decoder.forward(ids.data(), count, *cache, LogitRows::kLast, logits.data());
      if (round >= 0) seconds.push_back(seconds_now() - begin);
    }
    const Times t = summary(seconds);
    std::printf("{\"kind\": \"prefill\", \"tokens\": %zu, \"ms\": %.2f, \"ms_p95\": %.2f, \"linear_tops\": %.1f}\n",
                count, t.median * 1e3, t.p95 * 1e3, 2 * macs * static_cast<double>(count) / t.median * 1e-12);
    std::fprintf(stderr, "prefill %5zu tokens %8.2f ms %9.0f tok/s\n", count, t.median * 1e3,
                 static_cast<double>(count) / t.median);
  }
}

void fill_cache(DeviceDecoder& decoder, cuda::DeviceCache& cache, size_t count) {
  const std::vector<int32_t> ids = some_ids(count, decoder.config().vocab_size);
  const double begin = seconds_now();
  decoder.forward(ids.data(), count, cache, LogitRows::kNone, nullptr);
  std::fprintf(stderr, "prompt of %zu tokens: %.2f s\n", count, seconds_now() - begin);
}

void run(const Shape& shape, const std::set<std::string>& what) {
  const auto wanted = [&](const char* part) { return what.empty() || what.count(part) != 0; };
  const cuda::DeviceFacts facts = cuda::device_facts();
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  const Ceilings top{read_bandwidth(stream), copy_bandwidth(stream)};
  std::printf(
      "{\"kind\": \"device\", \"name\": \"%s\", \"sm\": %d%d, \"multiprocessors\": %d, \"l2\": %zu, \"driver\": %d, "
      "\"runtime\": %d, \"read_gb_s\": %.0f, \"copy_gb_s\": %.0f, \"model\": \"%s\"}\n",
      facts.name.c_str(), facts.major, facts.minor, facts.multiprocessors, facts.l2_bytes, facts.driver, facts.runtime,
      top.read * 1e-9, top.copy * 1e-9, shape.name);
  std::fprintf(stderr, "%s: read %.0f GB/s, copy %.0f GB/s (read + written); shapes of %s\n", facts.name.c_str(),
               top.read * 1e-9, top.copy * 1e-9, shape.name);
  if (wanted("gemv") || wanted("seed")) bench_gemv(shape, top, stream, wanted("gemv"), wanted("seed"));
  if (!wanted("step") && !wanted("prefill") && !wanted("ablation")) return;
  DeviceDecoder decoder(*synthetic_decoder(shape));
  if (wanted("prefill")) bench_prefill(shape, decoder);
  if (wanted("step")) {
    const auto cache = decoder.new_cache(33 << 10);
    fill_cache(decoder, *cache, 32768);
    bench_steps(shape, top, decoder, "", {16, 800, 4096, 32768}, *cache);
  }
  if (wanted("ablation")) {
    const auto cache = decoder.new_cache(2048);
    fill_cache(decoder, *cache, 800);
    bench_steps(shape, top, decoder, "graph, overlapped", {800}, *cache);
    decoder.use_graphs(false);
    bench_steps(shape, top, decoder, "no graph", {800}, *cache);
    cuda::allow_overlap(false);
    bench_steps(shape, top, decoder, "no graph, no overlap", {800}, *cache);
    decoder.use_graphs(true);
    const auto other = decoder.new_cache(2048);  // another cache: graphs are captured anew
    fill_cache(decoder, *other, 800);
    bench_steps(shape, top, decoder, "graph, no overlap", {800}, *other);
    cuda::allow_overlap(true);
  }
}

}  // namespace
}  // namespace intattention::bench

int main(int argc, char** argv) {
  using namespace intattention;
  const bench::Shape* shape = &bench::shapes()[2];
  std::set<std::string> what;
  for (int i = 1; i < argc; ++i) {
    bool named = false;
    for (const bench::Shape& s : bench::shapes())
      if (std::string(argv[i]) == s.name) shape = &s, named = true;
    if (!named) what.insert(argv[i]);
  }
  const std::string reason = cuda::why_unavailable();
  if (!reason.empty()) {
    std::fprintf(stderr, "bench_cuda: %s\n", reason.c_str());
    return 2;
  }
  try {
    bench::run(*shape, what);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_cuda: %s\n", error.what());
    return 1;
  }
  return 0;
}
