// Keys of single members of the Llama family. Sources: the configuration and
// modeling files of each in transformers.
#include <cmath>

#include "models/HfReaders.h"
#include "runtime/support/Text.h"

namespace tessera::models {
namespace {

constexpr double maxCap = 1e6;

/// A soft cap; an absent key has the reference's default, null means none.
std::optional<double> readCap(ConfigFields &fields, const char *key,
                              std::optional<double> absent) {
  if (!fields.written(key))
    return absent;
  return fields.maybeNumber(key, 1e-3, maxCap);
}

/// Early Gemma configs say "gelu" and mean its tanh form; `hidden_activation`
/// was added to resolve it.
void readGemmaActivation(ConfigFields &fields, ModelSpec &spec) {
  constexpr const char *meant = "gelu_pytorch_tanh";
  std::string old = fields.text("hidden_act", meant);
  if (old != meant && old != "gelu")
    fields.fail("hidden_act", fmt::format("activation {} is not supported; use "
                                          "{}",
                                          quote(old), meant));
  spec.activation = readActivation(fields, "hidden_activation", meant);
}

} // namespace

void readGemma(ConfigFields &fields, ModelSpec &spec) {
  readGemmaActivation(fields, spec);
  spec.normPlusOne = true;
  spec.embeddingScale = std::sqrt(double(spec.hidden));
  fields.requireNeutral("use_bidirectional_attention", false,
                        "tokens see only those before them");
  if (spec.family == Family::Gemma)
    return;
  const bool second = spec.family == Family::Gemma2;
  spec.residual.postNorms = true;
  spec.queryScalar = fields.number("query_pre_attn_scalar", 1e-3, 1e9, 256.0);
  using Cap = std::optional<double>;
  spec.scoreCap =
      readCap(fields, "attn_logit_softcapping", second ? Cap(50) : Cap());
  spec.logitCap =
      readCap(fields, "final_logit_softcapping", second ? Cap(30) : Cap());
}

void readPhi3(ConfigFields &fields, ModelSpec &spec) {
  spec.qkvLayout = QkvLayout::Fused;
  spec.fusedGateUp = true;
  constexpr const char *noDropout =
      "only attention_dropout is supported in this architecture";
  fields.requireNeutral("embd_pdrop", 0.0, noDropout);
  fields.requireNeutral("resid_pdrop", 0.0, noDropout);
  constexpr const char *ofOthers = "this architecture has no such setting";
  fields.requireNeutral("lm_head_bias", false, ofOthers);
  fields.requireNeutral("full_attn_mod", 1, ofOthers);
  fields.requireNeutral("interpolate_factor", 1, ofOthers);
}

void readSmolLm3(ConfigFields &fields, ModelSpec &spec) {
  constexpr const char *key = "no_rope_layers";
  // Despite the name, 1 means that the layer rotates. Without the list every
  // n-th layer does not.
  const int64_t every = fields.size("no_rope_layer_interval", maxLayers, 4);
  const std::vector<int64_t> given = fields.integers(key, true);
  if (!given.empty() && int64_t(given.size()) < spec.layers)
    return fields.fail(key, fmt::format("has {} entries for {} layers",
                                        given.size(), spec.layers));
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    const int64_t rotates =
        given.empty() ? (layer + 1) % every != 0 : given[size_t(layer)];
    if (rotates != 0 && rotates != 1)
      fields.fail(key, fmt::format("has {} for layer {}; use 1 (rope) or 0",
                                   rotates, layer));
    spec.unrotated.push_back(rotates == 0);
  }
  constexpr std::string_view unused[] = {"max_window_layers"};
  fields.ignore(unused);
}

void readGranite(ConfigFields &fields, ModelSpec &spec) {
  auto multiplier = [&](const char *key) {
    return fields.number(key, 1e-6, 1e6, 1.0);
  };
  spec.embeddingScale = multiplier("embedding_multiplier");
  spec.residual.scale = multiplier("residual_multiplier");
  spec.logitScale = 1 / multiplier("logits_scaling");
  const double scores = multiplier("attention_multiplier");
  spec.queryScalar = 1 / (scores * scores);
}

void readOlmo(ConfigFields &, ModelSpec &spec) {
  spec.residual.preNorms = false;
  spec.residual.postNorms = true;
}

void readOlmoe(ConfigFields &fields, ModelSpec &) {
  fields.requireNeutral("clip_qkv", nullptr,
                        "queries, keys and values are not clipped here");
}

void readGlm(ConfigFields &, ModelSpec &spec) {
  spec.interleavedRope = true;
  spec.fusedGateUp = true;
  spec.residual.postNorms = spec.family == Family::Glm4;
}

void readCohere(ConfigFields &fields, ModelSpec &spec) {
  spec.normBias = false;
  spec.interleavedRope = true;
  spec.residual.order = ResidualSpec::ParallelOneNorm;
  spec.logitScale = fields.number("logit_scale", 1e-6, 1e6, 0.0625);
  constexpr const char *fixed = "this architecture has no such choice";
  fields.requireNeutral("use_qk_norm", false,
                        "norms of queries and keys with a weight for each "
                        "head are not supported");
  fields.requireNeutral("rotary_pct", 1.0, fixed);
  fields.requireNeutral("position_embedding_type", "rope_gptj", fixed);
  fields.requireNeutral("order_of_interleaved_layers", "local_attn_first",
                        fixed);
  for (const char *key : {"use_parallel_block", "use_gated_activation",
                          "use_parallel_embedding", "use_embedding_sharing"})
    fields.requireNeutral(key, true, fixed);
  constexpr std::string_view unused[] = {"layer_switch", "model_max_length"};
  fields.ignore(unused);
}

void readStarCoder2(ConfigFields &fields, ModelSpec &spec) {
  spec.gatedMlp = false;
  spec.embeddingDropout = readDropout(fields, "embedding_dropout", 0.0);
  spec.residualDropout = readDropout(fields, "residual_dropout", 0.0);
  constexpr const char *fixed = "this architecture has no such choice";
  fields.requireNeutral("mlp_type", "default", fixed);
  fields.requireNeutral("norm_type", "layer_norm", fixed);
  fields.requireNeutral("scale_attn_weights", true, fixed);
  // Early names of keys above, which the reference does not read.
  constexpr std::string_view unused[] = {
      "activation_function", "layer_norm_epsilon", "attention_softmax_in_fp32",
      "scale_attention_softmax_in_fp32"};
  fields.ignore(unused);
}

void readStableLm(ConfigFields &fields, ModelSpec &spec) {
  spec.qkvBias = fields.flag("use_qkv_bias", false);
  if (fields.flag("use_parallel_residual", false))
    spec.residual.order = ResidualSpec::ParallelOneNorm;
  fields.requireNeutral("qk_layernorm", false,
                        "norms of queries and keys with a weight for each "
                        "head are not supported");
  fields.requireNeutral("hidden_dropout", 0.0,
                        "only attention_dropout is supported in this "
                        "architecture");
}

void readErnie(ConfigFields &fields, ModelSpec &spec) {
  spec.interleavedRope = true;
  constexpr const char *fixed = "this architecture has no such choice";
  fields.requireNeutral("use_rmsnorm", true, fixed);
  fields.requireNeutral("compression_ratio", 1.0, fixed);
}

void readSeedOss(ConfigFields &fields, ModelSpec &spec) {
  spec.outputBias = fields.flag("attention_out_bias", false);
  spec.residualDropout = readDropout(fields, "residual_dropout", 0.1);
}

void readHunYuan(ConfigFields &fields, ModelSpec &spec) {
  fields.requireNeutral("attention_head_dim", spec.headDim,
                        "conflicts with head_dim; correct one of the two");
  constexpr const char *fixed = "this architecture has no such choice";
  fields.requireNeutral("use_qk_norm", true, fixed);
  fields.requireNeutral("use_cla", false, fixed);
  fields.requireNeutral("add_classification_head", false, fixed);
  constexpr std::string_view unused[] = {
      "eod_token_id",  "im_start_id", "im_end_id", "im_newline_id",
      "text_start_id", "text_end_id", "pad_id",    "org_vocab_size",
      "mask_init_id",  "class_num"};
  fields.ignore(unused);
}

void readGptNeoX(ConfigFields &fields, ModelSpec &spec) {
  if (spec.kvHeads != spec.heads)
    fields.fail("num_key_value_heads",
                "this architecture has a key and a value for each query head");
  spec.gatedMlp = false;
  spec.mlpBias = true;
  spec.qkvLayout = QkvLayout::ByHead;
  if (fields.flag("use_parallel_residual", true))
    spec.residual.order = ResidualSpec::Parallel;
  // One rate for embeddings and for outputs of sub-layers.
  spec.residualDropout = readDropout(fields, "hidden_dropout", 0.0);
  spec.embeddingDropout = spec.residualDropout;
  constexpr std::string_view unused[] = {"classifier_dropout"};
  fields.ignore(unused);
}

void readGptOss(ConfigFields &fields, ModelSpec &spec) {
  spec.attentionSinks = true;
  fields.requireNeutral("hidden_act", "silu",
                        "this architecture has no such choice");
  spec.activation = Activation::QuickGelu;
  // The reference's default is the published models' yarn.
  if (!fields.written("rope_scaling") && !fields.written("rope_parameters"))
    fields.fail("rope_parameters", "is missing");
  constexpr std::string_view unused[] = {"initial_context_length"};
  fields.ignore(unused);
}

} // namespace tessera::models
