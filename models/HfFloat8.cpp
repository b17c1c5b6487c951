// Reads quantization_config of 8-bit floats. The tensors themselves tell which
// weights are quantized, so only settings that change the values are rejected
// here.
#include "models/HfReaders.h"
#include "runtime/data/Float8Blocks.h"

#include <array>
#include <optional>

namespace tessera::models {

static constexpr const char *kAdvice = ", so it may change the weights";

// Columns with one scale where a row has one, or the matrix.
static constexpr uint64_t kAllColumns = 128;

// Columns of a block, from the header that the reader of weights uses
// (runtime/data/Float8Weights.h).
static uint64_t readBlocks(ConfigFields &fields, std::string_view key,
                           const Json &json) {
  const auto blocks = float8BlocksOf(json);
  if (!blocks)
    fields.fail(key, kFloat8BlocksWanted);
  return blocks ? blocks->columns : kAllColumns;
}

// Whether the list at `key`, if there is one, leaves out no linear layer that
// programs quantize.
static bool quantizesAll(ConfigFields &fields, std::string_view key,
                         bool hasExperts) {
  const Json *modules = fields.find(key);
  if (!modules)
    return true;
  std::vector<std::string> names;
  for (const Json &each : *modules) {
    if (!each.is_string())
      return false;
    // Never quantized, and written by some tools.
    if (auto name = each.get<std::string>();
        !name.ends_with("norm") && !name.ends_with("embed_tokens"))
      names.push_back(std::move(name));
  }
  return modules->is_array() && leavesOutNoMatrix(names, hasExperts);
}

static std::optional<StoredFloats> floatsOf(uint64_t columns) {
  for (int64_t group : {128, 64, 32})
    if (columns % uint64_t(group) == 0)
      return StoredFloats{group};
  return std::nullopt;
}

// The format of DeepSeek-V3, Qwen3-FP8, AutoFP8 and others. Settings for
// quantized activations are ignored: they stay in the program's precision.
static std::optional<StoredFloats> readFp8(ConfigFields &fields,
                                           bool hasExperts) {
  if (fields.text("fmt", "e4m3") != "e4m3")
    fields.fail("fmt", "must be e4m3, the only supported 8-bit float; use the "
                       "model in full precision");
  uint64_t columns = kAllColumns;
  if (const Json *size = fields.find("weight_block_size"))
    columns = readBlocks(fields, "weight_block_size", *size);
  bool areAll = quantizesAll(fields, "modules_to_not_convert", hasExperts);
  areAll &= quantizesAll(fields, "ignored_layers",
                         hasExperts); // which is read in any case
  constexpr std::array<std::string_view, 3> about = {"activation_scheme",
                                                     "scale_fmt", "dequantize"};
  fields.ignore(about);
  fields.finish(kAdvice);
  return areAll ? floatsOf(columns) : std::nullopt;
}

// One scale per row; the bound applies to activations.
static std::optional<StoredFloats> readFbgemm(ConfigFields &fields,
                                              bool hasExperts) {
  const bool areAll =
      quantizesAll(fields, "modules_to_not_convert", hasExperts);
  constexpr std::array<std::string_view, 1> about = {"activation_scale_ub"};
  fields.ignore(about);
  fields.finish(kAdvice);
  return areAll ? floatsOf(kAllColumns) : std::nullopt;
}

const Json *onlyGroup(ConfigFields &fields) {
  const Json *groups = fields.section("config_groups");
  if (!groups || groups->size() != 1 || !groups->contains("group_0") ||
      !(*groups)["group_0"].is_object())
    fields.fail("config_groups", "must have one group, group_0");
  return fields.ok() ? &(*groups)["group_0"] : nullptr;
}

// Columns with one scale.
static uint64_t readFloatGroup(ConfigFields &fields, const Json &group) {
  uint64_t columns = kAllColumns;
  const std::string prefix = "quantization_config.config_groups.group_0.";
  ConfigFields inner(group, fields.file(), prefix);
  inner.requireNeutral("output_activations", nullptr, "weights only");
  constexpr std::array<std::string_view, 3> about = {"targets", "format",
                                                     "input_activations"};
  inner.ignore(about);
  const Json *weights = inner.section("weights");
  if (!weights)
    inner.fail("weights", "is missing");
  if (inner.ok()) {
    ConfigFields values(*weights, fields.file(), prefix + "weights.");
    if (values.size("num_bits", 64) != 8 || values.text("type", "") != "float")
      values.fail("num_bits", "must be 8, with the type float");
    values.requireNeutral("symmetric", true, "without zero points");
    values.requireNeutral("dynamic", false, "weights that are stored");
    values.requireNeutral("actorder", nullptr, "columns in their own order");
    const std::string strategy = values.text("strategy", "tensor");
    const Json *structure = values.find("block_structure"),
               *group = values.find("group_size");
    if (strategy == "block" && !structure)
      values.fail("strategy", "is block, which requires a block_structure");
    else if (strategy == "block")
      columns = readBlocks(values, "block_structure", *structure);
    else if (strategy == "group" && !group)
      values.fail("strategy", "is group, which requires a group_size");
    else if (strategy == "group")
      columns = readBlocks(values, "group_size", {1u, *group});
    else if (strategy != "tensor" && strategy != "channel")
      values.fail("strategy", "must be tensor, channel, group or block");
    constexpr std::array<std::string_view, 4> made = {
        "observer", "observer_kwargs", "scale_dtype", "zp_dtype"};
    values.ignore(made);
    values.finish(kAdvice);
    inner.adopt(values.status());
  }
  inner.finish(kAdvice);
  fields.adopt(inner.status());
  return columns;
}

static std::optional<StoredFloats> readFloatQuantized(ConfigFields &fields,
                                                      bool hasExperts) {
  const bool areAll = quantizesAll(fields, "ignore", hasExperts);
  uint64_t columns = kAllColumns;
  if (const Json *group = onlyGroup(fields))
    columns = readFloatGroup(fields, *group);
  fields.finish(kAdvice);
  return areAll ? floatsOf(columns) : std::nullopt;
}

bool readFloat8(ConfigFields &fields, std::string_view format, bool hasExperts,
                std::optional<StoredFloats> &floats) {
  if (format == "fp8")
    floats = readFp8(fields, hasExperts);
  else if (format == "fbgemm_fp8")
    floats = readFbgemm(fields, hasExperts);
  else if (format == "float-quantized")
    floats = readFloatQuantized(fields, hasExperts);
  else
    return false;
  return true;
}

} // namespace tessera::models
