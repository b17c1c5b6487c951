// Mixers of Mamba-2, and models that have them in some layers or in all.
// Sources: the configuration and modeling files of Mamba2 and GraniteMoeHybrid
// in transformers.
#include "models/HfReaders.h"
#include "runtime/support/Text.h"

#include <algorithm>

namespace tessera::models {
namespace {

/// A family's keys for its mixers, and defaults where its class has them.
struct MixerKeys {
  const char *heads, *headDim, *state, *groups, *kernel, *expand;
  const char *bias, *convBias;
  int64_t groupsDefault;
};

/// Python writes an infinity as a bare word, which the parser replaces by a
/// string, or as an object.
bool isInfinity(const Json &value) {
  return value == Json("\u221e") || value == Json{{"__float__", "Infinity"}};
}

void readStepLimits(ConfigFields &fields, StateSpaceSpec &mixer) {
  constexpr const char *key = "time_step_limit";
  const Json *given = fields.find(key);
  if (!given)
    return;
  auto isLimit = [](const Json &value) {
    return value.is_number() && value.get<double>() >= 0;
  };
  if (!given->is_array() || given->size() != 2 || !isLimit((*given)[0]) ||
      (!isLimit((*given)[1]) && !isInfinity((*given)[1])))
    return fields.fail(key, "is not a list of two limits from 0 on, of which "
                            "the second may be Infinity");
  mixer.leastStep = (*given)[0].get<double>();
  if (!isInfinity((*given)[1]))
    mixer.mostStep = (*given)[1].get<double>();
  if (mixer.mostStep && *mixer.mostStep <= mixer.leastStep)
    fields.fail(key, "has limits that are not in order");
}

void checkWidth(ConfigFields &fields, const MixerKeys &keys,
                const ModelSpec &spec, const StateSpaceSpec &mixer) {
  const double width =
      fields.number(keys.expand, 1e-3, 1e3, 2.0) * double(spec.hidden);
  if (int64_t(width) != mixer.width())
    fields.fail(keys.heads,
                fmt::format("{} heads of {} are {} wide, and {} × hidden_size "
                            "is {}; correct one of them",
                            mixer.heads, mixer.headDim, mixer.width(),
                            keys.expand, int64_t(width)));
  if (mixer.heads % mixer.groups)
    fields.fail(keys.groups,
                fmt::format("{} does not divide {} = {}", mixer.groups,
                            keys.heads, mixer.heads));
  if (mixer.channels() > maxIntermediate)
    fields.fail(keys.state,
                fmt::format("the convolution of {} channels is wider than {}",
                            mixer.channels(), maxIntermediate));
}

StateSpaceSpec readMixer(ConfigFields &fields, const MixerKeys &keys,
                         const ModelSpec &spec) {
  StateSpaceSpec mixer;
  constexpr int64_t most = 1 << 16;
  mixer.heads = fields.size(keys.heads, maxHeads);
  const Json *width = fields.find(keys.headDim);
  if (!width || *width == Json("auto"))
    mixer.headDim =
        std::max<int64_t>(int64_t(fields.number(keys.expand, 1e-3, 1e3, 2.0) *
                                  double(spec.hidden)) /
                              mixer.heads,
                          1);
  else
    mixer.headDim = fields.size(keys.headDim, most);
  mixer.state = fields.size(keys.state, most);
  mixer.groups = fields.size(keys.groups, maxHeads, keys.groupsDefault);
  mixer.kernel = fields.size(keys.kernel, 16, 4);
  if (mixer.kernel < 2)
    fields.fail(keys.kernel, "is 1, a convolution of one token; only kernels "
                             "of 2 to 16 are supported");
  mixer.bias = fields.flag(keys.bias, false);
  mixer.convBias = fields.flag(keys.convBias, true);
  readStepLimits(fields, mixer);
  if (fields.ok())
    checkWidth(fields, keys, spec, mixer);
  return mixer;
}

/// Of random steps; the floor is below them in all models.
void readInitialSteps(ConfigFields &fields, StateSpaceSpec &mixer) {
  const double least = fields.number("time_step_min", 1e-9, 1e3, 0.001),
               most = fields.number("time_step_max", 1e-9, 1e3, 0.1),
               floor = fields.number("time_step_floor", 0, 1e3, 1e-4);
  if (least > most)
    fields.fail("time_step_min", fmt::format("{} is more than time_step_max = "
                                             "{}",
                                             least, most));
  if (floor > least)
    fields.fail("time_step_floor",
                fmt::format("{} is more than time_step_min = {}, which is not "
                            "supported",
                            floor, least));
  mixer.initialSteps = {least, most};
  mixer.rescaled = fields.flag("rescale_prenorm_residual", false);
}

/// Which layers have a mixer: all, unless there is a list.
std::vector<bool> readLayers(ConfigFields &fields, int64_t layers) {
  const Key key{"layer_types", "layers_block_type"};
  const std::vector<std::string> types = fields.strings(key);
  if (types.empty())
    return std::vector<bool>(size_t(layers), true);
  std::vector<bool> recurrent;
  if (int64_t(types.size()) != layers)
    fields.fail(key.name, fmt::format("has {} entries for {} layers",
                                      types.size(), layers));
  for (const std::string &each : types) {
    // As in transformers 4, and in 5.
    const bool isMixer = each == "mamba" || each == "linear_attention";
    if (!isMixer && each != "attention" && each != "full_attention")
      fields.fail(key.name,
                  fmt::format("{} is not supported; use mamba or attention",
                              quote(each)));
    recurrent.push_back(isMixer);
  }
  return recurrent;
}

} // namespace

void readMamba2(ConfigFields &fields, ModelSpec &spec) {
  spec.vocab = fields.size("vocab_size", maxVocab);
  spec.hidden = fields.size("hidden_size", maxWidth);
  spec.layers = fields.size("num_hidden_layers", maxLayers);
  spec.maxPositions = maxPositionCount; // there are none
  spec.norm = NormKind::RmsNorm;
  spec.normEps = fields.number("layer_norm_epsilon", 1e-20, 1, 1e-5);
  spec.activation = readActivation(fields, "hidden_act", "silu");
  spec.tieWordEmbeddings = fields.flag("tie_word_embeddings", false);
  spec.initializerRange = 0.1;
  constexpr MixerKeys keys{"num_heads", "head_dim",      "state_size",
                           "n_groups",  "conv_kernel",   "expand",
                           "use_bias",  "use_conv_bias", 8};
  StateSpaceSpec mixer = readMixer(fields, keys, spec);
  readInitialSteps(fields, mixer);
  mixer.recurrent.assign(size_t(spec.layers), true);
  // In messages.
  spec.heads = spec.kvHeads = mixer.heads;
  spec.headDim = mixer.headDim;
  // How the reference divides its work, how it stores sums in bf16, and keys
  // that it does not read.
  constexpr std::string_view unused[] = {
      "chunk_size",      "residual_in_fp32",
      "time_step_rank",  "norm_before_gate",
      "rms_norm",        "intermediate_size",
      "time_step_scale", "time_step_init_scheme",
      "layer_types"};
  fields.ignore(unused);
  if (fields.ok())
    spec.stateSpace = std::move(mixer);
}

void readGraniteHybrid(ConfigFields &fields, ModelSpec &spec) {
  readGranite(fields, spec);
  constexpr MixerKeys keys{
      "mamba_n_heads",   "mamba_d_head",    "mamba_d_state",
      "mamba_n_groups",  "mamba_d_conv",    "mamba_expand",
      "mamba_proj_bias", "mamba_conv_bias", 1};
  StateSpaceSpec mixer = readMixer(fields, keys, spec);
  mixer.recurrent = readLayers(fields, spec.layers);
  const Json *experts = fields.find("num_local_experts");
  if (experts && *experts == Json(0)) {
    spec.intermediate =
        fields.size("shared_intermediate_size", maxIntermediate);
    spec.fusedGateUp = true;
    constexpr std::string_view unused[] = {
        "num_experts_per_tok", "output_router_logits", "router_aux_loss_coef"};
    fields.ignore(unused);
  } else {
    readMoe(fields, spec);
  }
  const std::string positions = fields.text("position_embedding_type", "nope");
  if (positions == "nope")
    spec.unrotated.assign(size_t(spec.layers), true);
  else if (positions != "rope")
    fields.fail(
        "position_embedding_type",
        fmt::format("{} is not supported; use rope or nope", quote(positions)));
  constexpr std::string_view unused[] = {
      "mamba_chunk_size", "normalization_function", "init_method"};
  fields.ignore(unused);
  // Granite 4 has members with attention in all layers.
  if (fields.ok() && std::ranges::count(mixer.recurrent, true) > 0)
    spec.stateSpace = std::move(mixer);
}

} // namespace tessera::models
