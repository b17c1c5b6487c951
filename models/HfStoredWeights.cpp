// Reads quantization_config: the supported formats of quantized weights.
#include "models/HfReaders.h"
#include "runtime/data/gguf/GgufLayouts.h"

#include <algorithm>
#include <array>

namespace tessera::models {

// Heads, routers of models with experts, and what expands latents.
bool leavesOutNoMatrix(const std::vector<std::string> &modules,
                       bool hasExperts) {
  return std::ranges::all_of(modules, [&](std::string_view name) {
    if (name.ends_with('$'))
      name.remove_suffix(1);
    return name == "lm_head" || name.ends_with("kv_b_proj") ||
           (hasExperts &&
            (name.ends_with(".gate") || name.ends_with("shared_expert_gate")));
  });
}

// Programs that cache latents multiply by parts of kv_b_proj, which are not
// read from integers.
static void checkLatents(ConfigFields &fields, const ModelSpec &spec,
                         std::string_view key,
                         const std::vector<std::string> &leftOut) {
  auto isExpansion = [](const std::string &name) {
    return name.find("kv_b_proj") != name.npos;
  };
  if (spec.latent && std::ranges::none_of(leftOut, isExpansion))
    fields.fail(key, "kv_b_proj must be left out: latent attention does not "
                     "read it from integers; use fp8 or full precision");
}

static void checkSizes(ConfigFields &fields, const StoredWeights &stored,
                       std::string_view bits) {
  if (stored.bits != 4 && stored.bits != 8)
    fields.fail(bits, "must be 4 or 8");
  if (stored.group != 32 && stored.group != 64 && stored.group != 128)
    fields.fail("group_size", "must be 32, 64 or 128");
}

// Ignores keys that only describe how values were found. Rejects quantized
// activations and other orders of columns.
static void readGroup(ConfigFields &fields, const Json &group,
                      StoredWeights &stored) {
  ConfigFields inner(group, fields.file(),
                     "quantization_config.config_groups.group_0.");
  if (auto targets = inner.strings("targets");
      targets != std::vector<std::string>{"Linear"})
    inner.fail("targets", "must be [\"Linear\"]");
  inner.requireNeutral("input_activations", nullptr, "weights only");
  inner.requireNeutral("output_activations", nullptr, "weights only");
  constexpr std::array<std::string_view, 1> about = {"format"};
  inner.ignore(about);
  const Json *weights = inner.section("weights");
  if (!weights)
    inner.fail("weights", "is missing");
  if (inner.ok()) {
    ConfigFields values(*weights, fields.file(),
                        "quantization_config.config_groups.group_0.weights.");
    stored.bits = values.size("num_bits", 8);
    stored.group = values.size("group_size", 1 << 16);
    values.requireNeutral("type", "int", "integers only");
    stored.zeros = !values.flag("symmetric", true);
    values.requireNeutral("strategy", "group", "groups of columns only");
    values.requireNeutral("dynamic", false, "weights that are stored");
    values.requireNeutral("actorder", nullptr, "columns in their own order");
    values.requireNeutral("block_structure", nullptr, "groups of columns only");
    constexpr std::array<std::string_view, 4> made = {
        "observer", "observer_kwargs", "scale_dtype", "zp_dtype"};
    values.ignore(made);
    checkSizes(values, stored, "num_bits");
    values.finish(", so it may change the weights");
    inner.adopt(values.status());
  }
  inner.finish(", so it may change the weights");
  fields.adopt(inner.status());
}

// The format of AutoGPTQ, GPTQModel and Optimum. Keys that describe how values
// were found are ignored.
static void readGptq(ConfigFields &fields, ConfigFields &,
                     const ModelSpec &spec, StoredWeights &stored) {
  checkLatents(fields, spec, "quant_method", {});
  stored.bits = fields.size("bits", 8);
  stored.group = fields.size("group_size", 1 << 16);
  checkSizes(fields, stored, "bits");
  stored.zeros = !fields.flag("sym", true);
  fields.requireNeutral("desc_act", false, "columns in their own order");
  fields.requireNeutral("lm_head", false, "heads in full precision");
  if (std::string format = fields.text("checkpoint_format", "gptq");
      format != "gptq" && format != "gptq_v2")
    fields.fail("checkpoint_format", "must be gptq or gptq_v2");
  else if (stored.zeros && format != "gptq")
    fields.fail("checkpoint_format", "must be gptq if sym is false: gptq_v2 "
                                     "encodes zero points differently");
  constexpr std::array<std::string_view, 22> made = {
      "damp_percent",
      "damp_auto_increment",
      "static_groups",
      "true_sequential",
      "model_name_or_path",
      "model_file_base_name",
      "meta",
      "pack_dtype",
      "dataset",
      "tokenizer",
      "use_exllama",
      "exllama_config",
      "use_cuda_fp16",
      "disable_exllama",
      "max_input_length",
      "batch_size",
      "pad_token_id",
      "model_seqlen",
      "is_marlin_format",
      "block_name_to_quantize",
      "cache_block_outputs",
      "module_name_preceding_first_block"};
  fields.ignore(made);
  fields.finish(", so it may change the weights");
}

// AutoAWQ's format for matrices ("gemm"). Its format for one row ("gemv") has
// another order.
static void readAwq(ConfigFields &fields, ConfigFields &outer,
                    const ModelSpec &spec, StoredWeights &stored) {
  stored.bits = fields.size("bits", 8);
  stored.group = fields.size("group_size", 1 << 16);
  stored.zeros = true;
  checkSizes(fields, stored, "bits");
  if (stored.bits != 4)
    fields.fail("bits", "must be 4");
  fields.requireNeutral("zero_point", true, "with zero points only");
  if (std::string version = fields.text("version", "gemm");
      version != "gemm" && version != "GEMM")
    fields.fail("version", "must be gemm; other orders are not supported");
  if (fields.text("backend", "autoawq") != "autoawq")
    fields.fail("backend", "must be autoawq; other orders are not supported");
  // Substrings of names; in Mixtral only routers contain "gate".
  auto kept = fields.strings("modules_to_not_convert");
  checkLatents(fields, spec, "modules_to_not_convert", kept);
  std::erase(kept, "kv_b_proj");
  if (outer.text("model_type", "") == "mixtral")
    std::erase(kept, "gate");
  if (!kept.empty() && kept != std::vector<std::string>{"lm_head"})
    fields.fail("modules_to_not_convert", "must be [\"lm_head\"] or empty");
  constexpr std::array<std::string_view, 4> runs = {
      "do_fuse", "fuse_max_seq_len", "modules_to_fuse", "exllama_config"};
  fields.ignore(runs);
  fields.finish(", so it may change the weights");
}

// Keys of compressed-tensors outside the groups, for integers and floats.
static void readCompressed(ConfigFields &fields) {
  fields.requireNeutral("kv_cache_scheme", nullptr, "weights only");
  if (const Json *sparsity = fields.section("sparsity_config");
      sparsity && !sparsity->empty() &&
      sparsity->value("format", Json()) != "dense")
    fields.fail("sparsity_config", "must be dense");
  fields.requireNeutral("transform_config", Json::object(),
                        "weights as they are");
  constexpr std::array<std::string_view, 3> about = {
      "quantization_status", "version", "global_compression_ratio"};
  fields.ignore(about);
}

// compressed-tensors' integers.
static void readPackQuantized(ConfigFields &fields, ConfigFields &outer,
                              const ModelSpec &spec, StoredWeights &stored) {
  if (fields.text("format", "") != "pack-quantized")
    return fields.fail("format", "must be pack-quantized or float-quantized");
  // Heads are stored in 8 bits or full precision.
  auto ignored = fields.strings("ignore");
  if (!leavesOutNoMatrix(ignored, spec.moe.has_value()))
    fields.fail("ignore",
                spec.moe ? "must be [\"lm_head\"] or empty, apart from routers"
                         : "must be [\"lm_head\"] or empty");
  checkLatents(fields, spec, "ignore", ignored);
  if (const Json *group = onlyGroup(fields))
    readGroup(fields, *group, stored);
  // Otherwise an untied head has 4 bits, or zero points.
  if ((stored.bits == 4 || stored.zeros) &&
      std::ranges::find(ignored, "lm_head") == ignored.end() &&
      !outer.flag("tie_word_embeddings", false))
    fields.fail("ignore", "must contain lm_head: heads are supported in 8 bits "
                          "without zero points, or in full precision");
  fields.finish(", so it may change the weights");
}

namespace {

/// Reads the settings of one quant_method; `outer` are those of the model.
struct Method {
  std::string_view name;
  void (*read)(ConfigFields &fields, ConfigFields &outer, const ModelSpec &spec,
               StoredWeights &stored);
};

constexpr Method kMethods[] = {
    {"compressed-tensors", readPackQuantized},
    {"gptq", readGptq},
    {"awq", readAwq},
};

} // namespace

// A GGUF file's, which models/gguf/GgufModel.cpp writes: types by parameter.
static void readGgufTypes(ConfigFields &fields, LoadedConfig &config) {
  const Json *types = fields.section("types");
  if (!types)
    return fields.fail("types", "is missing");
  for (const auto &[parameter, type] : types->items()) {
    auto layout = type.is_string()
                      ? ggufLayout(type.get_ref<const std::string &>())
                      : std::nullopt;
    if (!layout)
      return fields.fail("types", "no kernel reads the type of '" + parameter +
                                      "'; give the GGUF file itself");
    config.layouts.emplace(parameter, *layout);
  }
  fields.finish(", so it may change the weights");
}

// Whether a parameter is of a module, of whose name a part may be "*".
static bool isOf(std::string_view parameter, std::string_view module) {
  auto next = [](std::string_view &rest) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    rest.remove_prefix(dot == rest.npos ? rest.size() : dot + 1);
    return part;
  };
  while (!module.empty()) {
    const std::string_view wanted = next(module);
    if (parameter.empty() || (next(parameter) != wanted && wanted != "*"))
      return false;
  }
  return true;
}

// Experts in 4-bit floats with a power of two for each 32
// (runtime/weights/formats/Mxfp4.cpp), but those that stay in full precision.
// Rows consist of whole blocks, or the tensors are refused
// (runtime/data/Mxfp4Weights.cpp).
static void readMxfp4(ConfigFields &fields, LoadedConfig &config) {
  const auto leftOut = fields.strings("modules_to_not_convert");
  constexpr std::array<std::string_view, 1> about = {"dequantize"};
  fields.ignore(about);
  fields.finish(", so it may change the weights");
  const ModelSpec &spec = config.spec;
  constexpr int64_t block = QuantizedLayout::kMxfp4Group;
  if (!fields.ok() || !spec.moe || !spec.moe->fused ||
      spec.hidden % block != 0 || spec.moe->intermediate % block != 0)
    return;
  config.isDequantizable = true;
  for (const Parameter &each : parameters(spec))
    if ((each.name.ends_with(".mlp.experts.gate_up_proj") ||
         each.name.ends_with(".mlp.experts.down_proj")) &&
        std::ranges::none_of(leftOut, [&](const std::string &module) {
          return isOf(each.name, module);
        }))
      config.layouts.emplace(
          each.name,
          QuantizedLayout{.bits = 4, .group = block, .floats = true});
}

static void failMethod(ConfigFields &fields) {
  std::string names;
  for (const Method &method : kMethods)
    names += std::string(method.name) + ", ";
  fields.fail("quant_method", "must be " + names +
                                  "fp8, fbgemm_fp8 or mxfp4; for others use "
                                  "the model in full precision");
}

void readStoredWeights(ConfigFields &outer, LoadedConfig &config) {
  const Json *section = outer.section("quantization_config");
  if (!section)
    return;
  ConfigFields fields(*section, outer.file(), "quantization_config.");
  const std::string method = fields.text("quant_method", "");
  const bool isCompressed = method == "compressed-tensors";
  const std::string format = isCompressed ? fields.text("format", "") : method;
  if (isCompressed)
    readCompressed(fields);
  if (readFloat8(fields, format, config.spec.moe.has_value(), config.floats)) {
    outer.adopt(fields.status());
    return;
  }
  if (method == "mxfp4") {
    readMxfp4(fields, config);
    outer.adopt(fields.status());
    return;
  }
  if (method == "gguf") {
    readGgufTypes(fields, config);
    outer.adopt(fields.status());
    return;
  }
  StoredWeights &stored = config.stored.emplace();
  const auto *found = std::ranges::find(kMethods, method, &Method::name);
  if (found == std::end(kMethods))
    failMethod(fields);
  else
    found->read(fields, outer, config.spec, stored);
  outer.adopt(fields.status());
}

std::string withoutQuantization(const std::string &text) {
  auto config = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!config.is_object() || config.erase("quantization_config") == 0)
    return text;
  return config.dump(2) + "\n";
}

} // namespace tessera::models
