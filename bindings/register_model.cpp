#include "arrays.h"
#include "decoder.h"
#include "logit_rows.h"
#include "register.h"

namespace intattention::bindings {
namespace {

using SharedWeights = std::shared_ptr<PackedWeights>;

std::vector<float> vector_of(const py::array& array, const char* name) {
  const float* data = checked<float>(array, name, 1);
  return std::vector<float>(data, data + dim(array, 0));
}

LinearW4A8 linear_of(const std::vector<SharedWeights>& parts) {
  return LinearW4A8(std::vector<LinearW4A8::Part>(parts.begin(), parts.end()));
}

using OptionalArray = std::optional<py::array>;

std::vector<float> vector_of(const OptionalArray& array, const char* name) {
  return array ? vector_of(*array, name) : std::vector<float>();
}

std::shared_ptr<DecoderLayer> make_layer(const py::array& input_layernorm, const std::vector<SharedWeights>& qkv_proj,
                                         const SharedWeights& o_proj, const py::array& post_attention_layernorm,
                                         const std::vector<SharedWeights>& gate_up_proj, const SharedWeights& down_proj,
                                         const OptionalArray& qkv_bias, const OptionalArray& o_bias,
                                         const OptionalArray& gate_up_bias, const OptionalArray& down_bias,
                                         const OptionalArray& q_norm, const OptionalArray& k_norm,
                                         size_t sliding_window, const OptionalArray& qk_scale,
                                         const OptionalArray& k_center) {
  return std::make_shared<DecoderLayer>(DecoderLayer{
      vector_of(input_layernorm, "input_layernorm"), linear_of(qkv_proj), linear_of({o_proj}),
      vector_of(post_attention_layernorm, "post_attention_layernorm"), linear_of(gate_up_proj), linear_of({down_proj}),
      vector_of(qkv_bias, "qkv_bias"), vector_of(o_bias, "o_bias"), vector_of(gate_up_bias, "gate_up_bias"),
      vector_of(down_bias, "down_bias"), vector_of(q_norm, "q_norm"), vector_of(k_norm, "k_norm"), sliding_window,
      vector_of(qk_scale, "qk_scale"), vector_of(k_center, "k_center")});
}

Rope rope_of(const OptionalArray& inverse_frequency, double attention_factor) {
  Rope rope;
  rope.attention_factor = attention_factor;
  if (inverse_frequency) {
    const double* data = checked<double>(*inverse_frequency, "rope_inverse_frequency", 1);
    rope.inverse_frequency.assign(data, data + dim(*inverse_frequency, 0));
  }
  return rope;
}

DecoderInput decoder_input(const py::array& ids, KVCache& cache, const std::string& logits) {
  const int32_t* data = checked<int32_t>(ids, "ids", 1);
  return {data, dim(ids, 0), &cache, logit_rows(logits)};
}

py::array_t<float> forward_all(Decoder& decoder, const std::vector<DecoderInput>& inputs) {
  size_t rows = 0;
  for (const DecoderInput& input : inputs) rows += logit_row_count(input.rows, input.count);
  py::array_t<float> out = new_array<float>({rows, decoder.config().vocab_size});
  float* out_data = out.mutable_data();
  py::gil_scoped_release release;
  decoder.forward(inputs, out_data);
  return out;
}

py::array_t<float> forward(Decoder& decoder, const py::array& ids, KVCache& cache, const std::string& logits) {
  return forward_all(decoder, {decoder_input(ids, cache, logits)});
}

py::array_t<float> forward_batch(Decoder& decoder, const std::vector<py::array>& ids,
                                 const std::vector<std::shared_ptr<KVCache>>& caches,
                                 const std::vector<std::string>& logits) {
  if (ids.size() != caches.size() || ids.size() != logits.size())
    throw InvalidArgument(message("forward_batch: ", ids.size(), " arrays of ids, ", caches.size(), " caches and ",
                                  logits.size(), " choices of logits"));
  std::vector<DecoderInput> inputs;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!caches[i]) throw InvalidArgument(message("forward_batch: cache ", i, " is None"));
    inputs.push_back(decoder_input(ids[i], *caches[i], logits[i]));
  }
  return forward_all(decoder, inputs);
}

// q [heads, T, d], k and v [kv_heads, T, d] of one layer.
py::tuple capture_qkv(Decoder& decoder, const py::array& ids, KVCache& cache, size_t layer) {
  const int32_t* id_data = checked<int32_t>(ids, "ids", 1);
  const DecoderConfig& c = decoder.config();
  const size_t count = dim(ids, 0), d = c.head_dim, kv_heads = c.num_key_value_heads;
  const size_t rows = c.num_attention_heads + 2 * kv_heads;
  py::array_t<float> q = new_array<float>({c.num_attention_heads, count, d});
  py::array_t<float> k = new_array<float>({kv_heads, count, d}), v = new_array<float>({kv_heads, count, d});
  std::vector<float*> heads;
  for (py::array_t<float>* part : {&q, &k, &v})
    for (py::ssize_t h = 0; h < part->shape(0); ++h) heads.push_back(part->mutable_data(h, 0, 0));
  {
    py::gil_scoped_release release;
    std::vector<float> qkv(count * rows * d);
    decoder.capture_qkv(id_data, count, cache, layer, qkv.data());
    for (size_t t = 0; t < count; ++t)
      for (size_t h = 0; h < rows; ++h) std::copy_n(&qkv[(t * rows + h) * d], d, heads[h] + t * d);
  }
  return py::make_tuple(q, k, v);
}

void register_config(py::module_& m) {
  py::class_<DecoderConfig>(m, "DecoderConfig")
      .def(py::init([](size_t vocab_size, size_t hidden_size, size_t intermediate_size, size_t num_hidden_layers,
                       size_t num_attention_heads, size_t num_key_value_heads, size_t head_dim,
                       size_t max_position_embeddings, float rms_norm_eps, double rope_theta,
                       const OptionalArray& rope_inverse_frequency, double rope_attention_factor) {
             return DecoderConfig{vocab_size,
                                  hidden_size,
                                  intermediate_size,
                                  num_hidden_layers,
                                  num_attention_heads,
                                  num_key_value_heads,
                                  head_dim,
                                  max_position_embeddings,
                                  rms_norm_eps,
                                  rope_theta,
                                  rope_of(rope_inverse_frequency, rope_attention_factor)};
           }),
           py::kw_only(), py::arg("vocab_size"), py::arg("hidden_size"), py::arg("intermediate_size"),
           py::arg("num_hidden_layers"), py::arg("num_attention_heads"), py::arg("num_key_value_heads"),
           py::arg("head_dim"), py::arg("max_position_embeddings"), py::arg("rms_norm_eps"), py::arg("rope_theta"),
           py::arg("rope_inverse_frequency").noconvert() = py::none(), py::arg("rope_attention_factor") = 1.0)
      .def_readonly("vocab_size", &DecoderConfig::vocab_size)
      .def_readonly("hidden_size", &DecoderConfig::hidden_size)
      .def_readonly("intermediate_size", &DecoderConfig::intermediate_size)
      .def_readonly("num_hidden_layers", &DecoderConfig::num_hidden_layers)
      .def_readonly("num_attention_heads", &DecoderConfig::num_attention_heads)
      .def_readonly("num_key_value_heads", &DecoderConfig::num_key_value_heads)
      .def_readonly("head_dim", &DecoderConfig::head_dim)
      .def_readonly("max_position_embeddings", &DecoderConfig::max_position_embeddings)
      .def_readonly("rms_norm_eps", &DecoderConfig::rms_norm_eps)
      .def_readonly("rope_theta", &DecoderConfig::rope_theta)
      .def_property_readonly("rope_inverse_frequency",
                             [](const DecoderConfig& c) {
                               return py::array_t<double>(static_cast<py::ssize_t>(c.rope.inverse_frequency.size()),
                                                          c.rope.inverse_frequency.data());
                             })
      .def_property_readonly("rope_attention_factor", [](const DecoderConfig& c) { return c.rope.attention_factor; });
}

}  // namespace

void register_model(py::module_& m) {
  register_config(m);
  py::class_<DecoderLayer, std::shared_ptr<DecoderLayer>>(m, "DecoderLayer")
      .def(py::init(&make_layer), py::kw_only(), py::arg("input_layernorm").noconvert(), py::arg("qkv_proj"),
           py::arg("o_proj").none(false), py::arg("post_attention_layernorm").noconvert(), py::arg("gate_up_proj"),
           py::arg("down_proj").none(false), py::arg("qkv_bias").noconvert() = py::none(),
           py::arg("o_bias").noconvert() = py::none(), py::arg("gate_up_bias").noconvert() = py::none(),
           py::arg("down_bias").noconvert() = py::none(), py::arg("q_norm").noconvert() = py::none(),
           py::arg("k_norm").noconvert() = py::none(), py::arg("sliding_window") = 0,
           py::arg("qk_scale").noconvert() = py::none(), py::arg("k_center").noconvert() = py::none());
  py::class_<Decoder, std::shared_ptr<Decoder>>(m, "Decoder")
      .def(py::init([](const DecoderConfig& config, const SharedWeights& embed_tokens,
                       const std::vector<std::shared_ptr<DecoderLayer>>& layers, const py::array& norm,
                       const SharedWeights& lm_head, const std::shared_ptr<ThreadPool>& pool) {
             return std::make_shared<Decoder>(
                 config, embed_tokens, std::vector<std::shared_ptr<const DecoderLayer>>(layers.begin(), layers.end()),
                 vector_of(norm, "norm"), lm_head, pool);
           }),
           py::arg("config"), py::arg("embed_tokens").none(false), py::arg("layers"), py::arg("norm").noconvert(),
           py::arg("lm_head").none(true), py::arg("pool").none(false))
      .def_property_readonly("config", &Decoder::config, py::return_value_policy::reference_internal)
      .def_property_readonly("nbytes", &Decoder::nbytes)
      .def(
          "new_cache",
          [](const Decoder& decoder, size_t max_len) {
            const DecoderConfig& c = decoder.config();
            return std::make_shared<KVCache>(c.num_hidden_layers, c.num_key_value_heads, c.head_dim, max_len);
          },
          py::arg("max_len"))
      .def("forward", &forward, py::arg("ids").noconvert(), py::arg("cache"), py::arg("logits") = "last")
      .def("forward_batch", &forward_batch, py::arg("ids"), py::arg("caches"), py::arg("logits"))
      .def("capture_qkv", &capture_qkv, py::arg("ids").noconvert(), py::arg("cache"), py::arg("layer"));
}

}  // namespace intattention::bindings
