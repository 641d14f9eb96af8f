// Calls of the C API in any order with any sizes, strides, element types and values: each is done or refused with a
// status, and in the end the library still computes what it computed at first. Buffers are exactly as large as the
// tensors that lie in them, so that AddressSanitizer sees a byte too many.
//
//   mkdir -p fuzz/found/c_api && build/fuzz/fuzz/native/fuzz_c_api fuzz/found/c_api -max_total_time=600
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "fuzz_input.h"
#include "intattention.h"

using intattention::fuzzing::Input;

namespace {

constexpr size_t kHandles = 3;  // of each kind; any may be null

void allow(ia_status status) {
  if (status != IA_INTERNAL && status != IA_BUSY && status != IA_OUT_OF_MEMORY && status != IA_UNSUPPORTED_ISA) return;
  std::fprintf(stderr, "%s: %s\n", ia_status_name(status), ia_last_error());
  std::abort();
}

// A tensor and the memory it lies in; some are contiguous, some have gaps, go backwards or repeat.
class Tensor {
 public:
  explicit Tensor(Input& input) {
    t_.dtype = input.byte() % 6 - 1;
    const size_t element = t_.dtype == IA_F32 ? 4 : t_.dtype == IA_S8 ? 1 : 2;
    t_.heads = input.byte() % 7;
    t_.length = input.byte() % 40 * (input.byte() % 16 == 0 ? 8 : 1);
    t_.head_dim = input.byte() % 9 * (input.byte() % 4 == 0 ? 5 : 16);
    const size_t sizes[] = {t_.heads, t_.length, t_.head_dim};
    const uint8_t form = input.byte();
    size_t before = 0, after = element, step = element;
    for (int axis = 3; axis-- > 0 && form % 4 != 0;) {
      const int way = form >> (2 * axis) & 3;
      const ptrdiff_t stride = way == 0 ? 0 : static_cast<ptrdiff_t>(way == 2 ? step + element : step);
      const size_t reach = sizes[axis] == 0 ? 0 : (sizes[axis] - 1) * static_cast<size_t>(stride);
      t_.strides[axis] = way == 3 ? -stride : stride;
      (way == 3 ? before : after) += reach;
      step = step * (sizes[axis] == 0 ? 1 : sizes[axis]) + (way == 2 ? element * sizes[axis] : 0);
    }
    const bool contiguous = t_.strides[0] == 0 && t_.strides[1] == 0 && t_.strides[2] == 0;
    bytes_ = contiguous ? sizes[0] * sizes[1] * sizes[2] * element : before + after;
    data_.reset(new uint8_t[bytes_ == 0 ? 1 : bytes_]);
    fill(input);
    t_.data = form == 255 ? nullptr : data_.get() + (contiguous ? 0 : before);
    const uint8_t scales = input.byte();
    const bool single = scales % 3 == 1;
    const size_t count = single ? 1 : t_.heads * t_.length;
    scale_.reset(new float[count == 0 ? 1 : count]);
    for (size_t i = 0; i < count; ++i) scale_[i] = scales % 8 == 7 ? input.number<float>() : 0.01f;
    if (scales % 3 != 0) t_.scale = scale_.get();
    if (!single) t_.scale_strides[0] = static_cast<ptrdiff_t>(t_.length * 4), t_.scale_strides[1] = 4;
  }
  const ia_tensor* get() const { return &t_; }

 private:
  // A few bytes of the input over and over, or zeros with one of them somewhere.
  void fill(Input& input) {
    const uint8_t kind = input.byte();
    uint8_t pattern[8];
    input.take(pattern, sizeof pattern);
    for (size_t i = 0; i < bytes_; ++i)
      data_[i] = kind % 2 ? pattern[(i + i / 64) % 8] & (kind < 128 ? 0xbf : 0xff) : 0;
    if (bytes_ >= 8 && kind % 4 == 2) std::memcpy(data_.get() + input.number<uint16_t>() % (bytes_ - 7), pattern, 8);
  }

  ia_tensor t_{};
  size_t bytes_ = 0;
  std::unique_ptr<uint8_t[]> data_;
  std::unique_ptr<float[]> scale_;
};

struct Output {
  std::vector<float> data;
  ia_output out{};

  Output(Input& input, const ia_tensor* q) : data(q->heads * q->length * q->head_dim) {
    out.data = input.byte() == 255 ? nullptr : data.data();
  }
};

ia_attention_options options_of(Input& input) {
  ia_attention_options o{};
  o.struct_size = input.byte() == 255 ? input.byte() : sizeof o;
  o.causal = input.byte() % 2;
  o.window = input.byte() % 4 == 1 ? input.byte() : 0;
  o.prefix = input.byte() % 4 == 1 ? input.byte() : 0;
  o.scale = input.byte() % 8 == 1 ? input.number<float>() : 0.0f;
  return o;
}

struct World {
  ia_context* context = nullptr;
  ia_cache* caches[kHandles] = {};
  ia_linear* linears[kHandles] = {};
  ia_sampler* samplers[kHandles] = {};
  size_t features[kHandles][2] = {};

  World() {
    ia_context_options o{};
    o.struct_size = sizeof o;
    o.threads = 1;
    allow(ia_context_create(&o, &context));
  }
  ~World() {
    ia_context_destroy(&context);  // first: handles keep it alive
    for (size_t i = 0; i < kHandles; ++i) {
      ia_cache_destroy(&caches[i]);
      ia_linear_destroy(&linears[i]);
      ia_sampler_destroy(&samplers[i]);
    }
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
};

void cache_call(Input& input, World& w) {
  const size_t at = input.byte() % kHandles, layer = input.byte() % 4;
  ia_cache*& cache = w.caches[at];
  const uint8_t what = input.byte();
  size_t number = 0;
  if (what % 6 == 0) {
    ia_cache_destroy(&cache);
    const size_t layers = input.byte() % 4, heads = input.byte() % 5;
    const size_t d = input.byte() % 9 * 8, length = what == 252 ? input.number<size_t>() : input.byte() * 4u;
    allow(ia_cache_create(w.context, layers, heads, d, length, &cache));
  } else if (what % 6 == 1) {
    const Tensor k(input), v(input);
    allow(ia_cache_append(cache, layer, k.get(), v.get()));
  } else if (what % 6 == 2) {
    const Tensor q(input);
    const Output out(input, q.get());
    const ia_attention_options o = options_of(input);
    allow(ia_cache_attention(cache, layer, what < 128 ? &o : nullptr, q.get(), &out.out));
  } else if (what % 6 == 3) {
    allow(ia_cache_truncate(cache, what < 16 ? input.number<size_t>() : input.byte()));
  } else if (what % 6 == 4) {
    ia_cache*& fork = w.caches[(at + 1) % kHandles];
    ia_cache_destroy(&fork);
    allow(ia_cache_fork(cache, &fork));
  } else {
    allow(ia_cache_length(cache, &number));
    allow(ia_cache_bytes(cache, what < 16 ? nullptr : &number));
  }
}

void linear_call(Input& input, World& w) {
  const size_t at = input.byte() % kHandles;
  const uint8_t what = input.byte();
  if (what % 2 == 0) {
    ia_linear_destroy(&w.linears[at]);
    const size_t n = input.byte() % 40, k = input.byte() % 5 * (input.byte() % 8 == 0 ? 16 : 32);
    const ia_weight_format format = input.byte() % 5 - 1;
    std::vector<float> weights(n * k), importance(k, 1.0f);
    for (size_t i = 0; i < weights.size(); i += 7) weights[i] = input.number<float>();
    if (k > 0) importance[k / 2] = what % 16 == 2 ? input.number<float>() : 0.5f;
    w.features[at][0] = n, w.features[at][1] = k;
    if (what < 128) {
      allow(ia_linear_create(w.context, format, n, k, weights.data(), what % 4 ? importance.data() : nullptr,
                             &w.linears[at]));
    } else {
      const std::vector<uint8_t> q(n * k / (format == IA_W8G32 ? 1 : 2), input.byte());
      const std::vector<uint16_t> scale(n * (k / 32), input.number<uint16_t>());
      allow(ia_linear_pack(w.context, format, n, k, q.data(), scale.data(), what % 4 ? scale.data() : nullptr,
                           &w.linears[at]));
    }
  } else {
    const size_t rows = input.byte() % 12;
    std::vector<float> x(rows * w.features[at][1]), y(rows * w.features[at][0]);
    for (size_t i = 0; i < x.size(); i += 5) x[i] = input.number<float>();
    allow(ia_linear_run(w.linears[at], rows, what == 255 ? nullptr : x.data(), y.data()));
  }
}

void sampler_call(Input& input, World& w) {
  ia_sampler*& sampler = w.samplers[input.byte() % kHandles];
  const uint8_t what = input.byte();
  if (what % 3 == 0) {
    ia_sampler_destroy(&sampler);
    ia_sampling o{};
    o.struct_size = what == 0 ? input.byte() : sizeof o;
    o.temperature = input.number<float>();
    o.top_p = input.number<float>();
    o.min_p = input.byte() % 4 ? 0.0 : input.number<float>();
    o.repetition_penalty = input.byte() % 4 ? 1.25 : input.number<float>();
    o.top_k = input.byte();
    o.seed = input.number<uint64_t>();
    allow(ia_sampler_create(what == 3 ? nullptr : &o, &sampler));
  } else if (what % 3 == 1) {
    int32_t ids[4];
    for (int32_t& id : ids) id = input.byte() < 16 ? input.number<int32_t>() : input.byte();
    allow(ia_sampler_see(sampler, ids, input.byte() % 5));
  } else {
    std::vector<float> logits(input.byte());
    for (float& logit : logits) logit = what < 64 ? input.number<float>() : static_cast<float>(input.byte());
    int32_t token = -1;
    const ia_status status = ia_sampler_choose(sampler, logits.data(), logits.size(), &token);
    allow(status);
    if (status == IA_OK && (token < 0 || static_cast<size_t>(token) >= logits.size())) std::abort();
  }
}

void tensor_call(Input& input, World& w) {
  const uint8_t what = input.byte();
  if (what % 4 == 0) {
    const size_t groups = input.byte() % 6, group = input.byte() % 5 * (what < 64 ? 4 : 8);
    std::vector<float> x(groups * group), scale(groups);
    for (float& value : x) value = input.number<float>();
    std::vector<int8_t> q(x.size());
    allow(ia_quantize(groups, group, x.data(), q.data(), scale.data()));
    return;
  }
  const Tensor q(input), k(input), v(input);
  const Output out(input, q.get());
  const ia_attention_options o = options_of(input);
  allow(
      ia_attention(what == 255 ? nullptr : w.context, what < 128 ? &o : nullptr, q.get(), k.get(), v.get(), &out.out));
}

// The output of a call that is right, the same every time.
std::vector<float> known_answer(World& w) {
  std::vector<float> x(2 * 20 * 32), out(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) * 0.02f - 1.0f;
  ia_tensor t{};
  t.data = x.data();
  t.dtype = IA_F32;
  t.heads = 2, t.length = 20, t.head_dim = 32;
  const ia_output to{out.data(), {0, 0}};
  if (ia_attention(w.context, nullptr, &t, &t, &t, &to) != IA_OK) std::abort();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input{data, size};
  World world;
  static const std::vector<float> expected = known_answer(world);
  while (input.size > 0) {
    const uint8_t what = input.byte() % 4;
    (what == 0 ? cache_call : what == 1 ? linear_call : what == 2 ? sampler_call : tensor_call)(input, world);
  }
  if (known_answer(world) != expected) std::abort();
  return 0;
}
