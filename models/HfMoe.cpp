// Mixtures of experts: five shapes of keys. Sources: the configuration and
// modeling files of Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE, Dots1 and gpt-oss in
// transformers.
#include <algorithm>

#include "models/HfReaders.h"
#include "runtime/support/Text.h"

namespace tessera::models {
namespace {

/// Layers counted from one that are multiples of `step` have experts, unless
/// they are listed as dense.
std::vector<bool> readSparseLayers(ConfigFields &fields, int64_t layers) {
  int64_t step = fields.size("decoder_sparse_step", maxLayers, 1);
  std::vector<bool> sparse(static_cast<size_t>(layers));
  for (int64_t layer = 0; layer < layers; ++layer)
    sparse[static_cast<size_t>(layer)] = (layer + 1) % step == 0;
  for (int64_t layer : fields.integers("mlp_only_layers", true)) {
    if (layer >= 0 && layer < layers)
      sparse[static_cast<size_t>(layer)] = false;
    else
      fields.fail("mlp_only_layers",
                  fmt::format("has layer {} of {} layers", layer, layers));
  }
  return sparse;
}

void readMixtral(ConfigFields &fields, const ModelSpec &spec, MoeSpec &moe) {
  moe.experts = fields.size({"num_local_experts", "num_experts"}, maxExperts);
  moe.intermediate = spec.intermediate;
  moe.normalize = true;
  moe.sparse.assign(static_cast<size_t>(spec.layers), true);
  fields.requireNeutral("router_jitter_noise", 0.0,
                        "routers are not noisy here");
}

void readOlmoeExperts(ConfigFields &fields, const ModelSpec &spec,
                      MoeSpec &moe) {
  moe.experts = fields.size({"num_experts", "num_local_experts"}, maxExperts);
  moe.intermediate = spec.intermediate;
  moe.normalize = fields.flag("norm_topk_prob", false);
  moe.sparse.assign(static_cast<size_t>(spec.layers), true);
}

void readGptOssExperts(ConfigFields &fields, const ModelSpec &spec,
                       MoeSpec &moe) {
  moe.experts = fields.size({"num_local_experts", "num_experts"}, maxExperts);
  moe.intermediate = spec.intermediate;
  // The softmax of the chosen logits.
  moe.normalize = true;
  moe.routerBias = moe.fused = true;
  moe.swigluLimit = fields.number("swiglu_limit", 1e-3, 1e6, 7.0);
  fields.requireNeutral("swiglu_alpha", 1.702,
                        "experts multiply by sigmoid(1.702 x)");
  moe.sparse.assign(static_cast<size_t>(spec.layers), true);
}

void readQwen(ConfigFields &fields, const ModelSpec &spec, MoeSpec &moe) {
  // transformers 5 writes Mixtral's name for all of them.
  moe.experts = fields.size({"num_experts", "num_local_experts"}, maxExperts);
  moe.intermediate = fields.size("moe_intermediate_size", maxIntermediate);
  moe.normalize = fields.flag("norm_topk_prob", false);
  moe.sparse = readSparseLayers(fields, spec.layers);
  if (spec.family == Family::Qwen2Moe) {
    moe.sharedIntermediate =
        fields.size("shared_expert_intermediate_size", maxIntermediate);
    moe.sharedGate = true;
    fields.requireNeutral("qkv_bias", true,
                          "this architecture fixes its biases");
  }
}

void readGroups(ConfigFields &fields, MoeSpec &moe) {
  moe.groups = fields.size("n_group", maxExperts, 1);
  moe.chosenGroups = fields.size("topk_group", maxExperts, 1);
  if (moe.experts % moe.groups != 0 || moe.experts / moe.groups < 2)
    fields.fail("n_group",
                fmt::format("{} groups of {} experts; each must have the same "
                            "number of experts, at least two",
                            moe.groups, moe.experts));
  else if (moe.chosenGroups > moe.groups ||
           moe.chosen > moe.chosenGroups * (moe.experts / moe.groups))
    fields.fail("topk_group",
                fmt::format("{} of {} groups do not have the {} experts of a "
                            "token",
                            moe.chosenGroups, moe.groups, moe.chosen));
}

/// DeepSeek-V3's routing (2412.19437, section 2.1.2).
void readDots(ConfigFields &fields, const ModelSpec &spec, MoeSpec &moe) {
  moe.experts =
      fields.size({"n_routed_experts", "num_local_experts"}, maxExperts);
  moe.intermediate = fields.size("moe_intermediate_size", maxIntermediate);
  int64_t shared = fields.size("n_shared_experts", maxExperts);
  if (shared > maxIntermediate / moe.intermediate)
    fields.fail("n_shared_experts",
                fmt::format("{} shared experts of {} are wider than {}", shared,
                            moe.intermediate, maxIntermediate));
  else
    moe.sharedIntermediate = shared * moe.intermediate;
  moe.score = RouterScore::Sigmoid;
  moe.selectionBias = true;
  moe.normalize = fields.flag("norm_topk_prob", false);
  moe.scale = fields.number("routed_scaling_factor", 1e-6, 1e6, 1.0);
  int64_t dense = 0;
  if (const Json *given = fields.find("first_k_dense_replace");
      given && *given != Json(0))
    dense = fields.size("first_k_dense_replace", maxLayers);
  moe.sparse.assign(static_cast<size_t>(spec.layers), true);
  std::fill_n(moe.sparse.begin(), std::min(dense, spec.layers), false);
  fields.requireNeutral("moe_layer_freq", 1,
                        "every layer after the dense ones has experts");
  std::string scoring = fields.text("scoring_func", "sigmoid");
  if (scoring != "sigmoid" && scoring != "noaux_tc")
    fields.fail("scoring_func", fmt::format("{} is not supported; use sigmoid",
                                            quote(scoring)));
  fields.requireNeutral("topk_method", "noaux_tc",
                        "this architecture uses noaux_tc");
}

} // namespace

void readMoe(ConfigFields &fields, ModelSpec &spec) {
  MoeSpec moe;
  moe.chosen = spec.family == Family::GptOss
                   ? fields.size({"num_experts_per_tok", "experts_per_token"},
                                 maxExperts)
                   : fields.size("num_experts_per_tok", maxExperts);
  switch (spec.family) {
  case Family::Mixtral:
    readMixtral(fields, spec, moe);
    break;
  case Family::Dots1:
    readDots(fields, spec, moe);
    break;
  case Family::Olmoe:
    readOlmoeExperts(fields, spec, moe);
    break;
  case Family::GptOss:
    readGptOssExperts(fields, spec, moe);
    break;
  default:
    readQwen(fields, spec, moe);
  }
  // Load balancing is configured by the recipe (moe.balance).
  fields.flag("output_router_logits", false);
  fields.number("router_aux_loss_coef", 0, 1e6, 0.0);
  if (!fields.ok())
    return;
  if (moe.chosen > moe.experts)
    fields.fail("num_experts_per_tok",
                fmt::format("{} of {} experts", moe.chosen, moe.experts));
  if (moe.experts > maxExpertWidth / moe.intermediate)
    fields.fail("moe_intermediate_size",
                fmt::format("{} experts of {} are wider than {} in all",
                            moe.experts, moe.intermediate, maxExpertWidth));
  if (spec.family == Family::Dots1)
    readGroups(fields, moe);
  if (fields.ok() && moe.sparseLayers() > 0)
    spec.moe = std::move(moe);
}

} // namespace tessera::models
