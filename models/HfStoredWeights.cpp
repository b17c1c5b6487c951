// quantization_config: which stored weights are understood.
#include "models/HfReaders.h"

#include <algorithm>
#include <array>

namespace tessera::models {

// Whether nothing is left out of what is quantized but the head and, of models
// with experts, routers, which are not quantized anyway: as modules, or as
// patterns of their names.
static bool leavesOutNoMatrix(const std::vector<std::string> &modules,
                              bool hasExperts) {
  return std::ranges::all_of(modules, [&](std::string_view name) {
    if (name.ends_with('$'))
      name.remove_suffix(1);
    return name == "lm_head" ||
           (hasExperts &&
            (name.ends_with(".gate") || name.ends_with("shared_expert_gate")));
  });
}

static void checkSizes(ConfigFields &fields, const StoredWeights &stored,
                       std::string_view bits) {
  if (stored.bits != 4 && stored.bits != 8)
    fields.fail(bits, "must be 4 or 8");
  if (stored.group != 32 && stored.group != 64 && stored.group != 128)
    fields.fail("group_size", "must be 32, 64 or 128");
}

// Keys that only say how it came about are passed over; what would round
// activations, or change the order of columns, is refused.
static void readGroup(ConfigFields &fields, const Json &group,
                      StoredWeights &stored) {
  ConfigFields inner(group, fields.file(),
                     "quantization_config.config_groups.group_0.");
  if (auto targets = inner.texts("targets");
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
    values.finish(", so it may change what the weights are");
    inner.adopt(values.status());
  }
  inner.finish(", so it may change what the weights are");
  fields.adopt(inner.status());
}

// What AutoGPTQ, GPTQModel and Optimum write. How the values were found says
// nothing of what they are.
static void readGptq(ConfigFields &fields, StoredWeights &stored) {
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
    fields.fail("checkpoint_format",
                "must be gptq where sym is false: in gptq_v2 zero points are "
                "others");
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
  fields.finish(", so it may change what the weights are");
}

// What AutoAWQ writes for products with matrices ("gemm"); those for one row
// ("gemv") lie in another order.
static void readAwq(ConfigFields &fields, bool isMixtral,
                    StoredWeights &stored) {
  stored.bits = fields.size("bits", 8);
  stored.group = fields.size("group_size", 1 << 16);
  stored.zeros = true;
  checkSizes(fields, stored, "bits");
  if (stored.bits != 4)
    fields.fail("bits", "must be 4");
  fields.requireNeutral("zero_point", true, "with zero points only");
  if (std::string version = fields.text("version", "gemm");
      version != "gemm" && version != "GEMM")
    fields.fail("version", "must be gemm; other orders are not read");
  if (fields.text("backend", "autoawq") != "autoawq")
    fields.fail("backend", "must be autoawq; other orders are not read");
  // Parts of names; of Mixtral's only those of routers have a "gate".
  auto kept = fields.texts("modules_to_not_convert");
  if (isMixtral)
    std::erase(kept, "gate");
  if (!kept.empty() && kept != std::vector<std::string>{"lm_head"})
    fields.fail("modules_to_not_convert", "must be [\"lm_head\"], or nothing");
  constexpr std::array<std::string_view, 4> runs = {
      "do_fuse", "fuse_max_seq_len", "modules_to_fuse", "exllama_config"};
  fields.ignore(runs);
  fields.finish(", so it may change what the weights are");
}

// What stands around compressed-tensors' groups, whatever numbers these have.
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
  // Heads are kept in 8 bits, whether they are stored so or unpacked.
  auto ignored = fields.texts("ignore");
  if (!leavesOutNoMatrix(ignored, spec.moe.has_value()))
    fields.fail("ignore", spec.moe
                              ? "must be [\"lm_head\"], or nothing, beside "
                                "routers"
                              : "must be [\"lm_head\"], or nothing");
  if (const Json *group = onlyGroup(fields))
    readGroup(fields, *group, stored);
  // A head that is not tied is then among the matrices of 4 bits, or with zero
  // points.
  if ((stored.bits == 4 || stored.zeros) &&
      std::ranges::find(ignored, "lm_head") == ignored.end() &&
      !outer.flag("tie_word_embeddings", false))
    fields.fail("ignore", "lm_head must be in it: heads are read in 8 bits "
                          "without zero points, or unpacked");
  fields.finish(", so it may change what the weights are");
}

std::optional<StoredWeights> readStoredWeights(ConfigFields &outer,
                                               const ModelSpec &spec) {
  const Json *section = outer.section("quantization_config");
  if (!section)
    return std::nullopt;
  ConfigFields fields(*section, outer.file(), "quantization_config.");
  const std::string method = fields.text("quant_method", "");
  const bool isCompressed = method == "compressed-tensors";
  const std::string format = isCompressed ? fields.text("format", "") : method;
  if (isCompressed)
    readCompressed(fields);
  if (readFloat8(fields, format)) {
    outer.adopt(fields.status());
    return std::nullopt; // bf16 for all who read them
  }
  StoredWeights stored;
  if (method == "gptq")
    readGptq(fields, stored);
  else if (method == "awq")
    readAwq(fields, outer.text("model_type", "") == "mixtral", stored);
  else if (!isCompressed)
    fields.fail("quant_method",
                "must be compressed-tensors, gptq, awq, fp8 or fbgemm_fp8; "
                "other formats are not read, give the model in full "
                "precision");
  else if (format != "pack-quantized")
    fields.fail("format", "must be pack-quantized or float-quantized");
  else
    readPackQuantized(fields, outer, spec, stored);
  outer.adopt(fields.status());
  return stored;
}

} // namespace tessera::models
