// Attention on the device gives the bits of the CPU's portable table (which the NumPy oracle checks), for one token
// split over key blocks and for many.
#include "attention.h"

#include "attention_case.h"
#include "cuda_test.h"
#include "device_cache.h"
#include "dispatch.h"
#include "rotation.h"

namespace intattention::cuda {
namespace {

class AttentionCuda : public CudaTest {
 protected:
  void TearDown() override { use_isa(runnable_tables().front()->name); }

  void fill(const AttentionCase& p) {
    case_ = p;
    case_.fill(*this);
    for (size_t i = 5; i < case_.k_scale.size(); i += 11) case_.k_scale[i] = 0.0f;
  }

  std::vector<float> on_cpu(size_t first, size_t count) const {
    use_isa("portable");
    return case_.run(case_.filled_cache(), first, count, 2);
  }

  // The cache's content in the order drawn at CacheView.
  struct DeviceKV {
    DeviceBuffer k, v, k_scale, v_log;
    CacheView view;
  };
  DeviceKV device_cache() const {
    const AttentionCase& p = case_;
    const size_t d = p.head_dim, capacity = (p.kv_len + kKeyBlock - 1) / kKeyBlock * kKeyBlock;
    std::vector<int8_t> k(p.n_kv_heads * capacity * d), v(k.size());
    std::vector<float> k_scale(p.n_kv_heads * capacity, 1e30f);  // what lies beyond the keys must not matter
    std::vector<int16_t> v_log(p.n_kv_heads * capacity, 30000);
    for (size_t h = 0; h < p.n_kv_heads; ++h)
      for (size_t j = 0; j < p.kv_len; ++j) {
        const size_t block = (h * capacity + j / kKeyBlock * kKeyBlock) * d, key = j % kKeyBlock;
        for (size_t c = 0; c < d; ++c) {
          k[block + (c / 16 * kKeyBlock + key) * 16 + c % 16] = p.k[(h * p.kv_len + j) * d + c];
          v[block + (key / 16 * d + c) * 16 + key % 16] = p.v[(h * p.kv_len + j) * d + c];
        }
        k_scale[h * capacity + j] = p.k_scale[h * p.kv_len + j];
        v_log[h * capacity + j] = log_scale(p.v_scale[h * p.kv_len + j]);
      }
    DeviceKV out{DeviceBuffer::of(k), DeviceBuffer::of(v), DeviceBuffer::of(k_scale), DeviceBuffer::of(v_log), {}};
    out.view = {out.k.as<int8_t>(),
                out.v.as<int8_t>(),
                out.k_scale.as<float>(),
                out.v_log.as<int16_t>(),
                static_cast<uint32_t>(capacity),
                static_cast<uint32_t>(p.n_kv_heads),
                static_cast<uint32_t>(d)};
    return out;
  }

  // `room`: key blocks of the grid of attention_split; 0: attention_rows.
  std::vector<float> on_device(const DeviceKV& cache, size_t first, size_t count, size_t room) const {
    const AttentionCase& p = case_;
    const size_t d = p.head_dim, width = p.width();
    const AttentionCase::Queries queries = p.queries(first, count);
    const DeviceBuffer dq = DeviceBuffer::of(queries.q), dscale = DeviceBuffer::of(queries.scale),
                       out(count * width * sizeof(float));
    const std::vector<StepState> state{{0, static_cast<int32_t>(first), 0, 0}};
    const DeviceBuffer dstate = DeviceBuffer::of(state), weights = DeviceBuffer::of(sum_weights());
    const float rotation = static_cast<float>(rotation_size(d));
    const AttentionArgs args{cache.view,
                             dq.as<int8_t>(),
                             dscale.as<float>(),
                             dstate.as<StepState>(),
                             static_cast<uint32_t>(count),
                             static_cast<uint32_t>(p.n_heads / p.n_kv_heads),
                             static_cast<uint32_t>(p.window),
                             AttentionCase::kScale / rotation,
                             static_cast<float>(kSumWeightOne) / rotation,
                             static_cast<uint32_t>(rotation_size(d)),
                             weights.as<uint16_t>(),
                             out.as<float>()};
    const DeviceBuffer head(p.n_heads * room * sizeof(int4)), part(p.n_heads * room * d * 4),
        probs(p.n_heads * room * kKeyBlock), arrived(p.n_heads * 4);
    const RowsOnDevice act((width + 31) / 32 * 32);
    if (room == 0)
      attention_rows(args, nullptr);
    else
      attention_split(args,
                      {head.as<int4>(), part.as<int32_t>(), probs.as<uint8_t>(), arrived.as<uint32_t>(),
                       static_cast<uint32_t>(room)},
                      static_cast<uint32_t>(room), act.rows(), nullptr);
    synchronize();
    const std::vector<float> result = download(out, count * width);
    if (room != 0 && d % 32 == 0) act.expect(quantize_activations_reference(result));
    return result;
  }

  AttentionCase case_;
};

TEST_F(AttentionCuda, ManyTokens) {
  const AttentionCase problems[] = {{9, 3, 64, 40, 0},   {4, 2, 128, 300, 0},   {2, 2, 80, 270, 100},
                                    {3, 1, 16, 1100, 0}, {4, 1, 96, 17, 0},     {28, 4, 128, 33, 0},
                                    {1, 1, 256, 520, 0}, {12, 1, 32, 600, 300}, {6, 2, 48, 1300, 260}};
  for (const AttentionCase& p : problems) {
    SCOPED_TRACE(::testing::Message() << "head_dim " << p.head_dim << " kv_len " << p.kv_len << " window " << p.window);
    fill(p);
    const DeviceKV cache = device_cache();
    expect_bits(on_device(cache, 0, p.kv_len, 0), on_cpu(0, p.kv_len));
    if (HasFatalFailure()) return;
  }
}

TEST_F(AttentionCuda, OneTokenSplitOverKeyBlocks) {
  for (size_t kv_len : {1, 31, 32, 33, 127, 256, 257, 1024, 1025, 4097})
    for (const AttentionCase& shape : {AttentionCase{28, 4, 128, kv_len, 0}, AttentionCase{9, 3, 64, kv_len, 0},
                                       AttentionCase{10, 1, 80, kv_len, 700}}) {
      SCOPED_TRACE(::testing::Message() << "head_dim " << shape.head_dim << " kv_len " << kv_len);
      fill(shape);
      const DeviceKV cache = device_cache();
      const std::vector<float> expected = on_cpu(kv_len - 1, 1);
      const size_t blocks = (kv_len + kKeyBlock - 1) / kKeyBlock;
      for (size_t room : {blocks, 2 * blocks, 8 * blocks}) expect_bits(on_device(cache, kv_len - 1, 1, room), expected);
      expect_bits(on_device(cache, kv_len - 1, 1, 0), expected);
      if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace intattention::cuda
