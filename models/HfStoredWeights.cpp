// quantization_config: which stored weights are understood.
#include "models/HfReaders.h"

#include <array>

namespace tessera::models {

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
    values.requireNeutral("symmetric", true, "without zero points only");
    values.requireNeutral("strategy", "group", "groups of columns only");
    values.requireNeutral("dynamic", false, "weights that are stored");
    values.requireNeutral("actorder", nullptr, "columns in their own order");
    values.requireNeutral("block_structure", nullptr, "groups of columns only");
    constexpr std::array<std::string_view, 4> made = {
        "observer", "observer_kwargs", "scale_dtype", "zp_dtype"};
    values.ignore(made);
    if (stored.bits != 4 && stored.bits != 8)
      values.fail("num_bits", "must be 4 or 8");
    if (stored.group != 32 && stored.group != 64 && stored.group != 128)
      values.fail("group_size", "must be 32, 64 or 128");
    values.finish(", so it may change what the weights are");
    inner.adopt(values.status());
  }
  inner.finish(", so it may change what the weights are");
  fields.adopt(inner.status());
}

std::optional<StoredWeights> readStoredWeights(ConfigFields &outer) {
  const Json *section = outer.section("quantization_config");
  if (!section)
    return std::nullopt;
  ConfigFields fields(*section, outer.file(), "quantization_config.");
  StoredWeights stored;
  if (fields.text("quant_method", "") != "compressed-tensors")
    fields.fail("quant_method", "must be compressed-tensors; other formats are "
                                "not read, give the model in full precision");
  if (fields.text("format", "") != "pack-quantized")
    fields.fail("format", "must be pack-quantized");
  fields.requireNeutral("kv_cache_scheme", nullptr, "weights only");
  fields.requireNeutral("sparsity_config", Json::object(), "dense only");
  fields.requireNeutral("transform_config", Json::object(),
                        "weights as they are");
  constexpr std::array<std::string_view, 3> about = {
      "quantization_status", "version", "global_compression_ratio"};
  fields.ignore(about);
  // Heads are kept in 8 bits, whether they are stored so or unpacked.
  auto ignored = fields.texts("ignore");
  if (!ignored.empty() && ignored != std::vector<std::string>{"lm_head"})
    fields.fail("ignore", "must be [\"lm_head\"], or nothing");
  const Json *groups = fields.section("config_groups");
  if (!groups || groups->size() != 1 || !groups->contains("group_0") ||
      !(*groups)["group_0"].is_object())
    fields.fail("config_groups", "must have one group, group_0");
  if (fields.ok())
    readGroup(fields, (*groups)["group_0"], stored);
  // A head that is not tied is then among the matrices of 4 bits.
  if (stored.bits == 4 && ignored.empty() &&
      !outer.flag("tie_word_embeddings", false))
    fields.fail("ignore", "lm_head must be in it: heads are read in 8 bits or "
                          "unpacked, not in 4");
  fields.finish(", so it may change what the weights are");
  outer.adopt(fields.status());
  return stored;
}

} // namespace tessera::models
