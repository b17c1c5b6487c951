// Reads quantization_config of 8-bit floats. The tensors themselves tell which
// weights are quantized, so only settings that change the values are rejected
// here.
#include "models/HfReaders.h"
#include "runtime/data/Float8Blocks.h"

#include <array>

namespace tessera::models {

static constexpr const char *kAdvice = ", so it may change the weights";

// Rows and columns of a block, from the header that the reader of weights uses
// (runtime/data/Float8Weights.h).
static void checkBlocks(ConfigFields &fields, std::string_view key,
                        const Json &blocks) {
  if (!float8BlocksOf(blocks))
    fields.fail(key, kFloat8BlocksWanted);
}

// The format of DeepSeek-V3, Qwen3-FP8, AutoFP8 and others. Settings for
// quantized activations are ignored: they stay in the program's precision.
static void readFp8(ConfigFields &fields) {
  if (fields.text("fmt", "e4m3") != "e4m3")
    fields.fail("fmt", "must be e4m3, the only supported 8-bit float; use the "
                       "model in full precision");
  if (const Json *size = fields.find("weight_block_size"))
    checkBlocks(fields, "weight_block_size", *size);
  constexpr std::array<std::string_view, 5> about = {
      "activation_scheme", "scale_fmt", "dequantize", "modules_to_not_convert",
      "ignored_layers"};
  fields.ignore(about);
  fields.finish(kAdvice);
}

// One scale per row; the bound applies to activations.
static void readFbgemm(ConfigFields &fields) {
  constexpr std::array<std::string_view, 2> about = {"activation_scale_ub",
                                                     "modules_to_not_convert"};
  fields.ignore(about);
  fields.finish(kAdvice);
}

// 4-bit floats with a power of two for each 32 (runtime/data/Mxfp4Weights.cpp).
static void readMxfp4(ConfigFields &fields) {
  constexpr std::array<std::string_view, 2> about = {"modules_to_not_convert",
                                                     "dequantize"};
  fields.ignore(about);
  fields.finish(kAdvice);
}

const Json *onlyGroup(ConfigFields &fields) {
  const Json *groups = fields.section("config_groups");
  if (!groups || groups->size() != 1 || !groups->contains("group_0") ||
      !(*groups)["group_0"].is_object())
    fields.fail("config_groups", "must have one group, group_0");
  return fields.ok() ? &(*groups)["group_0"] : nullptr;
}

static void readFloatGroup(ConfigFields &fields, const Json &group) {
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
      checkBlocks(values, "block_structure", *structure);
    else if (strategy == "group" && !group)
      values.fail("strategy", "is group, which requires a group_size");
    else if (strategy == "group")
      checkBlocks(values, "group_size", {1u, *group});
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
}

static void readFloatQuantized(ConfigFields &fields) {
  constexpr std::array<std::string_view, 1> about = {"ignore"};
  fields.ignore(about);
  if (const Json *group = onlyGroup(fields))
    readFloatGroup(fields, *group);
  fields.finish(kAdvice);
}

bool readFloat8(ConfigFields &fields, std::string_view format) {
  if (format == "fp8")
    readFp8(fields);
  else if (format == "fbgemm_fp8")
    readFbgemm(fields);
  else if (format == "mxfp4")
    readMxfp4(fields);
  else if (format == "float-quantized")
    readFloatQuantized(fields);
  else
    return false;
  return true;
}

} // namespace tessera::models
