// Token ids in, token ids out: a whole generation loop without Python.
//
//   edge_app MODEL.iatt [--max N] [--seed S --temperature T --top-k K --top-p P] [--threads N] ID ID ID ...
//
// Prints the new ids on one line, without the one that ends the turn; they equal Python's for the same arguments
// (scripts/check_edge_app.py). Text <-> ids is the host's business; the file carries the tokenizer (ia_model_text).
#include <intattention.hpp>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace {

struct Arguments {
  std::string model;
  std::map<std::string, std::string> options;
  std::vector<int32_t> ids;

  Arguments(int argc, char** argv) : model(argc > 1 ? argv[1] : "") {
    for (int i = 2; i < argc; ++i) {
      const std::string word = argv[i];
      if (word.rfind("--", 0) == 0 && i + 1 < argc)
        options[word.substr(2)] = argv[++i];
      else
        ids.push_back(static_cast<int32_t>(std::strtol(word.c_str(), nullptr, 10)));
    }
  }
  double number(const char* name, double otherwise) const {
    const auto found = options.find(name);
    return found == options.end() ? otherwise : std::strtod(found->second.c_str(), nullptr);
  }
};

ia_sampling sampling(const Arguments& arguments) {
  ia_sampling options{};
  options.struct_size = sizeof options;
  options.temperature = arguments.number("temperature", 0);
  options.top_p = arguments.number("top-p", 1);
  options.top_k = static_cast<uint64_t>(arguments.number("top-k", 0));
  options.seed = static_cast<uint64_t>(arguments.number("seed", 0));
  return options;
}

void generate(const Arguments& arguments) {
  const ia::Context context(static_cast<int>(arguments.number("threads", 0)));
  const ia::Model model(context, arguments.model);
  const ia_model_info info = model.info();
  ia::Cache cache = model.new_cache();
  ia::Sampler sampler(sampling(arguments));
  sampler.see(arguments.ids);

  const auto most = static_cast<size_t>(arguments.number("max", 32));
  std::vector<int32_t> next = arguments.ids;
  for (size_t count = 0; count < most && cache.length() < info.context; ++count) {
    const std::vector<float> logits = model.forward(cache, next);
    const int32_t token = sampler.choose(logits.data(), info.token_count);
    if (model.is_end(token)) break;
    std::printf("%s%d", count == 0 ? "" : " ", token);
    std::fflush(stdout);
    next = {token};
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments(argc, argv);
  if (arguments.ids.empty()) {
    std::fprintf(stderr,
                 "usage: edge_app MODEL.iatt [--max N] [--seed S --temperature T --top-k K --top-p P] "
                 "[--threads N] ID ...\n");
    return 2;
  }
  try {
    generate(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "edge_app: %s\n", error.what());
    return 1;
  }
  return 0;
}
