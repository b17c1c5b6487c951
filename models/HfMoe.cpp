// Mixtures of experts. Sources: the configuration and modeling files of
// Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE, DeepSeek-V2 and V3, Dots1, gpt-oss and
// GraniteMoeHybrid in transformers.
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

/// Granite's, in addition to a shared one in every layer.
void readGraniteExperts(ConfigFields &fields, const ModelSpec &spec,
                        MoeSpec &moe) {
  moe.experts = fields.size({"num_local_experts", "num_experts"}, maxExperts);
  moe.intermediate = spec.intermediate;
  moe.sharedIntermediate =
      fields.size("shared_intermediate_size", maxIntermediate);
  moe.normalize = true; // the softmax of the chosen logits
  moe.fusedGateUp = true;
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

/// Groups of experts; `groups` and `chosen` are the class's defaults, if it has
/// any.
void readGroups(ConfigFields &fields, MoeSpec &moe,
                std::optional<int64_t> groups, std::optional<int64_t> chosen) {
  moe.groups = fields.size("n_group", maxExperts, groups);
  moe.chosenGroups = fields.size("topk_group", maxExperts, chosen);
  if (moe.chosen > moe.experts)
    return; // readMoe says so
  if (moe.experts % moe.groups != 0 || moe.experts / moe.groups < moe.groupBest)
    fields.fail("n_group",
                fmt::format("{} groups of {} experts; each must have the same "
                            "number of experts, at least {}",
                            moe.groups, moe.experts, moe.groupBest));
  else if (moe.chosenGroups > moe.groups ||
           moe.chosen > moe.chosenGroups * (moe.experts / moe.groups))
    fields.fail("topk_group",
                fmt::format("{} of {} groups do not have the {} experts of a "
                            "token",
                            moe.chosenGroups, moe.groups, moe.chosen));
}

/// Shared experts, and which layers have experts, of DeepSeek and Dots1.
void readDeepseekLayers(ConfigFields &fields, const ModelSpec &spec,
                        MoeSpec &moe) {
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
  constexpr const char *key = "first_k_dense_replace";
  int64_t dense = spec.family == Family::DeepseekV3 ? 3 : 0;
  if (const Json *given = fields.find(key))
    dense = *given == Json(0) ? 0 : fields.size(key, maxLayers);
  moe.sparse.assign(static_cast<size_t>(spec.layers), true);
  std::fill_n(moe.sparse.begin(), std::min(dense, spec.layers), false);
  fields.requireNeutral("moe_layer_freq", 1,
                        "every layer after the dense ones has experts");
  // Of the balance loss and of parallel experts, which the recipe and --mesh
  // configure.
  constexpr std::string_view unused[] = {"aux_loss_alpha", "seq_aux",
                                         "ep_size"};
  if (spec.family != Family::Dots1)
    fields.ignore(unused);
}

/// DeepSeek-V3's routing (2412.19437, section 2.1.2).
void readBiasedRouting(ConfigFields &fields, const ModelSpec &spec,
                       MoeSpec &moe) {
  const bool isV3 = spec.family == Family::DeepseekV3;
  readDeepseekLayers(fields, spec, moe);
  moe.score = RouterScore::Sigmoid;
  moe.selectionBias = true;
  // Null is false, as in Python.
  moe.normalize =
      fields.flag("norm_topk_prob", isV3 && !fields.written("norm_topk_prob"));
  moe.scale =
      fields.number("routed_scaling_factor", 1e-6, 1e6, isV3 ? 2.5 : 1.0);
  std::string scoring = fields.text("scoring_func", "sigmoid");
  if (scoring != "sigmoid" && scoring != "noaux_tc")
    fields.fail("scoring_func", fmt::format("{} is not supported; use sigmoid",
                                            quote(scoring)));
  fields.requireNeutral("topk_method", "noaux_tc",
                        "this architecture uses noaux_tc");
  // Multi-token prediction, which the reference uses to speculate.
  constexpr std::string_view unused[] = {"num_nextn_predict_layers"};
  if (isV3)
    fields.ignore(unused);
  readGroups(fields, moe, isV3 ? 8 : 1, isV3 ? 4 : 1);
}

/// DeepSeek-V2's routing (2405.04434, section 2.2).
void readDeepseekV2(ConfigFields &fields, const ModelSpec &spec, MoeSpec &moe) {
  readDeepseekLayers(fields, spec, moe);
  moe.scale = fields.number("routed_scaling_factor", 1e-6, 1e6, 1.0);
  fields.requireNeutral("norm_topk_prob", false,
                        "this architecture does not normalize weights");
  fields.requireNeutral("scoring_func", "softmax",
                        "this architecture uses softmax");
  std::string method = fields.text("topk_method", "greedy");
  moe.groupBest = 1;
  if (method == "group_limited_greedy")
    return readGroups(fields, moe, {}, {});
  if (method != "greedy")
    fields.fail("topk_method", fmt::format("{} is not supported; use greedy or "
                                           "group_limited_greedy",
                                           quote(method)));
  constexpr std::string_view unused[] = {"n_group", "topk_group"};
  fields.ignore(unused);
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
  case Family::DeepseekV3:
    readBiasedRouting(fields, spec, moe);
    break;
  case Family::DeepseekV2:
    readDeepseekV2(fields, spec, moe);
    break;
  case Family::Olmoe:
    readOlmoeExperts(fields, spec, moe);
    break;
  case Family::GptOss:
    readGptOssExperts(fields, spec, moe);
    break;
  case Family::GraniteHybrid:
    readGraniteExperts(fields, spec, moe);
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
  if (fields.ok() && moe.sparseLayers() > 0)
    spec.moe = std::move(moe);
}

} // namespace tessera::models
