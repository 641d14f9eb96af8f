#include "iatt_model.h"

#include <functional>
#include <limits>
#include <utility>

#include "error.h"
#include "json_reader.h"

namespace intattention {
namespace {

constexpr uint64_t kMaxContext = uint64_t{1} << 31;

// A rotation for caches of up to `context` tokens.
struct Rotation {
  size_t context = 0;
  std::vector<double> inverse_frequency;
};

struct LayerText {
  std::string input_layernorm, o_proj, post_attention_layernorm, down_proj, q_norm, k_norm;
  std::vector<std::string> qkv_proj, gate_up_proj, qkv_bias, o_bias, gate_up_bias, down_bias;
  size_t sliding_window = 0;
  std::vector<float> qk_scale, k_center;
};

struct Description {
  DecoderConfig config{};
  double rms_norm_eps = 0;
  size_t context = 0;
  std::vector<Rotation> rotations;
  size_t token_count = 0;
  std::vector<int32_t> end_ids;
  std::string embed_tokens, norm, lm_head;
  std::vector<LayerText> layers;
};

class Parser {
 public:
  explicit Parser(const std::string& text) : json_(text) {}

  Description parse() {
    Description d;
    DecoderConfig& c = d.config;
    json_.fields({{"vocab_size", size(&c.vocab_size)},
                  {"hidden_size", size(&c.hidden_size)},
                  {"intermediate_size", size(&c.intermediate_size)},
                  {"num_hidden_layers", size(&c.num_hidden_layers)},
                  {"num_attention_heads", size(&c.num_attention_heads)},
                  {"num_key_value_heads", size(&c.num_key_value_heads)},
                  {"head_dim", size(&c.head_dim)},
                  {"max_position_embeddings", size(&c.max_position_embeddings)},
                  {"rms_norm_eps", real(&d.rms_norm_eps)},
                  {"rope_theta", real(&c.rope_theta)},
                  {"rope_attention_factor", real(&c.rope.attention_factor)},
                  {"context", size(&d.context)},
                  {"rotations", [&] { json_.array([&] { d.rotations.push_back(rotation()); }); }},
                  {"token_count", size(&d.token_count)},
                  {"end_ids", [&] { json_.array([&] { d.end_ids.push_back(id()); }); }},
                  {"embed_tokens", text(&d.embed_tokens)},
                  {"norm", text(&d.norm)},
                  {"lm_head", text(&d.lm_head)},
                  {"layers", [&] { json_.array([&] { d.layers.push_back(layer()); }); }}});
    json_.end();
    c.rms_norm_eps = static_cast<float>(d.rms_norm_eps);
    return d;
  }

 private:
  std::function<void()> size(size_t* out) {
    return [this, out] { *out = json_.integer(); };
  }
  std::function<void()> real(double* out) {
    return [this, out] { *out = json_.real(); };
  }
  // A name, or null: empty.
  std::function<void()> text(std::string* out) {
    return [this, out] {
      if (!json_.take_null()) *out = json_.string();
    };
  }
  std::function<void()> texts(std::vector<std::string>* out) {
    return [this, out] { json_.array([&] { out->push_back(json_.string()); }); };
  }
  std::function<void()> floats(std::vector<float>* out) {
    return [this, out] { *out = json_.floats(); };
  }

  int32_t id() {
    const uint64_t value = json_.integer();
    if (value > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) json_.fail("an id exceeds 31 bits");
    return static_cast<int32_t>(value);
  }

  Rotation rotation() {
    Rotation r;
    json_.fields(
        {{"context", size(&r.context)}, {"inverse_frequency", [&] { r.inverse_frequency = json_.doubles(); }}});
    return r;
  }

  LayerText layer() {
    LayerText l;
    json_.fields({{"input_layernorm", text(&l.input_layernorm)},
                  {"qkv_proj", texts(&l.qkv_proj)},
                  {"o_proj", text(&l.o_proj)},
                  {"post_attention_layernorm", text(&l.post_attention_layernorm)},
                  {"gate_up_proj", texts(&l.gate_up_proj)},
                  {"down_proj", text(&l.down_proj)},
                  {"qkv_bias", texts(&l.qkv_bias)},
                  {"o_bias", texts(&l.o_bias)},
                  {"gate_up_bias", texts(&l.gate_up_bias)},
                  {"down_bias", texts(&l.down_bias)},
                  {"q_norm", text(&l.q_norm)},
                  {"k_norm", text(&l.k_norm)},
                  {"sliding_window", size(&l.sliding_window)},
                  {"qk_scale", floats(&l.qk_scale)},
                  {"k_center", floats(&l.k_center)}});
    return l;
  }

  JsonReader json_;
};

LinearW4A8 linear(const IattFile& file, const std::vector<std::string>& names) {
  std::vector<LinearW4A8::Part> parts;
  for (const std::string& name : names) parts.push_back(file.matrix(name));
  return LinearW4A8(std::move(parts));
}

std::vector<float> optional_vector(const IattFile& file, const std::string& name) {
  return name.empty() ? std::vector<float>() : file.vector(name);
}

// The vectors side by side.
std::vector<float> joined(const IattFile& file, const std::vector<std::string>& names) {
  std::vector<float> all;
  for (const std::string& name : names) {
    const std::vector<float> part = file.vector(name);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::shared_ptr<const DecoderLayer> make_layer(const IattFile& file, LayerText text) {
  return std::make_shared<DecoderLayer>(DecoderLayer{
      file.vector(text.input_layernorm), linear(file, text.qkv_proj), linear(file, {text.o_proj}),
      file.vector(text.post_attention_layernorm), linear(file, text.gate_up_proj), linear(file, {text.down_proj}),
      joined(file, text.qkv_bias), joined(file, text.o_bias), joined(file, text.gate_up_bias),
      joined(file, text.down_bias), optional_vector(file, text.q_norm), optional_vector(file, text.k_norm),
      text.sliding_window, std::move(text.qk_scale), std::move(text.k_center)});
}

Description read_description(const IattFile& file) {
  const std::string* text = file.text(kDecoderText);
  if (text == nullptr)
    throw UnsupportedModel(message(file.path(), ": the file has no description of the decoder (", kDecoderText,
                                   "); pack the original model again"));
  try {
    return Parser(*text).parse();
  } catch (const ModelFileError& error) {
    file.fail(message(kDecoderText, ": ", error.what()));
  }
}

void choose_rotation(const IattFile& file, const Description& d, size_t context, Rope* rope) {
  size_t longest = 0;
  for (const Rotation& rotation : d.rotations) {
    longest = std::max(longest, rotation.context);
    if (context > rotation.context) continue;
    rope->inverse_frequency = rotation.inverse_frequency;
    return;
  }
  throw InvalidArgument(message("the context is ", context, ", ", file.path(), " is packed for up to ", longest));
}

}  // namespace

IattModel load_iatt_model(const IattFile& file, size_t context, const std::shared_ptr<ThreadPool>& pool) {
  Description d = read_description(file);
  if (context == 0) context = d.context;
  if (context == 0 || context > kMaxContext) throw InvalidArgument(message("the context is ", context));
  choose_rotation(file, d, context, &d.config.rope);
  if (d.token_count == 0 || d.token_count > d.config.vocab_size)
    file.fail(message(d.token_count, " tokens, but the model's vocabulary is ", d.config.vocab_size));
  std::vector<std::shared_ptr<const DecoderLayer>> layers;
  for (LayerText& text : d.layers) layers.push_back(make_layer(file, std::move(text)));
  const Decoder::Weights embed = file.matrix(d.embed_tokens);
  const Decoder::Weights head = d.lm_head.empty() ? nullptr : file.matrix(d.lm_head);
  try {
    auto decoder = std::make_shared<Decoder>(d.config, embed, std::move(layers), file.vector(d.norm), head, pool);
    return {std::move(decoder), context, d.token_count, std::move(d.end_ids)};
  } catch (const InvalidArgument& error) {
    file.fail(error.what());
  }
}

}  // namespace intattention
