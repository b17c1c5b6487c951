// The Llama family: one shape of config, a set of defaults for each member.
#include <algorithm>

#include "models/HfReaders.h"
#include "runtime/support/Text.h"

namespace tessera::models {
namespace {

/// Whether each layer slides, from layer_types or, without it, from the
/// family's rule. [layers]
std::vector<bool> readSlidingLayers(ConfigFields &fields,
                                    const LlamaTraits &traits,
                                    const ModelSpec &spec, bool enabled) {
  std::vector<bool> slides(size_t(spec.layers), enabled);
  bool last = traits.window == LlamaTraits::LastLayers;
  if (last || traits.window == LlamaTraits::UpperLayers) {
    // The first max_window_layers layers have no window, despite the name.
    int64_t full = last ? 62 : 28;
    if (const Json *given = fields.find("max_window_layers");
        given && *given == Json(0))
      full = 0;
    else
      full = fields.size("max_window_layers", maxLayers, full);
    std::fill_n(slides.begin(), std::min(full, spec.layers), false);
  }
  if (traits.window == LlamaTraits::EvenLayers)
    for (size_t layer = 1; layer < slides.size(); layer += 2)
      slides[layer] = false;
  if (traits.window == LlamaTraits::Pattern) {
    auto every = size_t(
        fields.size({"sliding_window_pattern", "_sliding_window_pattern"},
                    maxLayers, traits.pattern));
    for (size_t layer = every - 1; layer < slides.size(); layer += every)
      slides[layer] = false;
  }
  if (traits.window == LlamaTraits::UnrotatedLayers)
    for (size_t layer = 0; layer < slides.size(); ++layer)
      slides[layer] =
          enabled && !spec.unrotated.empty() && spec.unrotated[layer];
  // Their readers have read which layers attend.
  if (spec.stateSpace || spec.family == Family::GraniteHybrid)
    return slides;
  std::vector<std::string> types = fields.strings("layer_types");
  if (types.empty())
    return slides;
  if (types.size() != slides.size()) {
    fields.fail("layer_types", fmt::format("has {} entries for {} layers",
                                           types.size(), spec.layers));
    return slides;
  }
  for (size_t layer = 0; layer < types.size(); ++layer) {
    bool sliding = types[layer] == "sliding_attention";
    if (!sliding && types[layer] != "full_attention")
      fields.fail("layer_types",
                  fmt::format("{} is not supported; use full_attention or "
                              "sliding_attention",
                              quote(types[layer])));
    else if (sliding && !enabled)
      fields.fail("layer_types",
                  fmt::format("layer {} slides but the model has no sliding "
                              "window; correct one of the two",
                              layer));
    else if (traits.window == LlamaTraits::EveryLayer && sliding != enabled)
      fields.fail("layer_types",
                  fmt::format("layer {} does not slide, but '{}' models slide "
                              "in every layer or in none",
                              layer, name(spec.family)));
    slides[layer] = sliding;
  }
  return slides;
}

void readWindows(ConfigFields &fields, const LlamaTraits &traits,
                 ModelSpec &spec) {
  // An absent key may have a default; null means none.
  bool absent = !fields.written("sliding_window");
  const Json *given = fields.find("sliding_window");
  bool enabled = given || (absent && traits.windowDefault);
  if (traits.window == LlamaTraits::UpperLayers ||
      traits.window == LlamaTraits::UnrotatedLayers)
    enabled = fields.flag("use_sliding_window", false) && enabled;
  else if (traits.window == LlamaTraits::Off)
    fields.requireNeutral("use_sliding_window", false,
                          "versions of this architecture disagree about which "
                          "layers slide");
  else
    fields.requireNeutral("use_sliding_window", false,
                          "this architecture has no such setting");
  int64_t window = traits.windowDefault;
  if (traits.window == LlamaTraits::Off) {
    enabled = false;
    constexpr std::string_view unused[] = {"max_window_layers"};
    fields.ignore(unused);
  } else if (traits.window == LlamaTraits::NoWindow) {
    enabled = false;
    fields.requireNeutral("sliding_window", nullptr,
                          "this architecture attends to the whole past");
  } else if (given) {
    window = fields.size("sliding_window", maxPositionCount);
  }
  std::vector<bool> slides = readSlidingLayers(fields, traits, spec, enabled);
  spec.windows.clear();
  if (!std::ranges::count(slides, true))
    return;
  for (bool each : slides)
    spec.windows.push_back(each ? window : 0);
}

void readLlamaHeads(ConfigFields &fields, const LlamaTraits &traits,
                    ModelSpec &spec) {
  spec.heads = fields.size("num_attention_heads", maxHeads);
  std::optional<int64_t> kvDefault;
  if (traits.kvHeadsDefault)
    kvDefault = spec.heads;
  spec.kvHeads = fields.size("num_key_value_heads", maxHeads, kvDefault);
  if (spec.heads % spec.kvHeads != 0)
    fields.fail("num_attention_heads",
                fmt::format("{} is not a multiple of num_key_value_heads = {}",
                            spec.heads, spec.kvHeads));
  if (traits.latent)
    return readLatentHeads(fields, spec);
  // If given, it is used as is: Mistral-Nemo and Qwen3 have heads * head_dim !=
  // hidden.
  bool given = fields.find("head_dim") != nullptr;
  if (!given && traits.headDimDefault == 0 && spec.hidden % spec.heads != 0)
    fields.fail("hidden_size",
                fmt::format("{} is not a multiple of num_attention_heads = {}; "
                            "correct one or give head_dim",
                            spec.hidden, spec.heads));
  int64_t derived =
      traits.headDimDefault ? traits.headDimDefault : spec.hidden / spec.heads;
  spec.headDim =
      fields.size("head_dim", 1 << 16, std::max<int64_t>(derived, 1));
  if (spec.headDim % 2 != 0)
    fields.fail("head_dim",
                fmt::format("{} is odd; rope needs pairs", spec.headDim));
  if (spec.heads * spec.headDim > maxIntermediate)
    fields.fail("head_dim",
                fmt::format("{} heads of {} are wider than {}", spec.heads,
                            spec.headDim, maxIntermediate));
}

void readBiases(ConfigFields &fields, const LlamaTraits &traits,
                ModelSpec &spec) {
  constexpr const char *noKey = "this architecture fixes its biases";
  spec.qkvBias = traits.qkvBias;
  spec.outputBias = spec.mlpBias = false;
  switch (traits.biasKey) {
  case LlamaTraits::NoBiasKey:
    fields.requireNeutral("attention_bias",
                          traits.qkvBias ? Json() : Json(false), noKey);
    break;
  case LlamaTraits::OfAttention:
  case LlamaTraits::OfQkv:
    spec.qkvBias = fields.flag("attention_bias", traits.biasDefault);
    spec.outputBias =
        spec.qkvBias && traits.biasKey == LlamaTraits::OfAttention;
    break;
  case LlamaTraits::UseBias:
    spec.qkvBias = spec.outputBias = spec.mlpBias =
        fields.flag("use_bias", traits.biasDefault);
  }
  if (traits.mlpBiasKey)
    spec.mlpBias = fields.flag("mlp_bias", false);
  else
    fields.requireNeutral("mlp_bias", false, noKey);
}

void readRopes(ConfigFields &fields, const LlamaTraits &traits,
               ModelSpec &spec) {
  if (traits.ropes == LlamaTraits::OneRope)
    spec.rope = readRope(fields, traits, spec);
  else
    readLayerRopes(fields, traits, spec);
  if (!traits.rotatesOnlyWindows)
    return;
  for (int64_t layer = 0; layer < spec.layers; ++layer)
    spec.unrotated.push_back(spec.window(layer) == 0);
}

} // namespace

void readLlama(ConfigFields &fields, const LlamaTraits &traits,
               ModelSpec &spec) {
  spec.vocab = fields.size("vocab_size", maxVocab);
  spec.hidden = fields.size("hidden_size", maxWidth);
  spec.layers = fields.size("num_hidden_layers", maxLayers);
  spec.intermediate = fields.size("intermediate_size", maxIntermediate);
  spec.maxPositions = fields.size("max_position_embeddings", maxPositionCount,
                                  traits.maxPositions);
  readLlamaHeads(fields, traits, spec);

  spec.norm = traits.norm;
  spec.normEps = fields.number(traits.normEpsKey, 1e-20, 1, traits.normEps);
  if (traits.activation)
    spec.activation = readActivation(fields, "hidden_act", traits.activation);
  spec.gatedMlp = true;
  spec.tieWordEmbeddings = fields.flag("tie_word_embeddings", traits.tied);
  spec.qkNorm = traits.qkNorm;
  readBiases(fields, traits, spec);
  spec.attentionDropout =
      readDropout(fields, "attention_dropout", traits.attentionDropout);
  if (!fields.ok())
    return; // the rest divides by these values and allocates by them
  if (traits.own)
    traits.own(fields, spec);
  if (traits.rotaryShare > 0)
    readRotaryShare(fields, traits, spec);
  if (!fields.ok())
    return;
  readWindows(fields, traits, spec);
  readRopes(fields, traits, spec);
  if (traits.latent)
    scaleLatentScores(spec);
  if (traits.experts)
    readMoe(fields, spec);
}

} // namespace tessera::models
