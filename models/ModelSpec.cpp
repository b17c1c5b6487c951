// Names, shapes and counts that follow from a ModelSpec.
#include "models/ModelSpec.h"
#include "runtime/weights/AdapterNames.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <span>

#include <fmt/format.h>

namespace tessera::models {

double ModelSpec::attentionScale(int64_t layer) const {
  double width = queryScalar.value_or(double(headDim));
  double scale = scaleAttention ? 1.0 / std::sqrt(width) : 1.0;
  return scaleAttentionByInverseLayer ? scale / double(layer + 1) : scale;
}

int64_t Parameter::elements() const {
  int64_t count = 1;
  for (int64_t dim : shape)
    count *= dim;
  return count;
}

int64_t MoeSpec::sparseLayers() const {
  return std::ranges::count(sparse, true);
}

int64_t StateSpaceSpec::recurrentLayers() const {
  return std::ranges::count(recurrent, true);
}

std::vector<LayerParts> ModelSpec::kindsOfLayers() const {
  std::vector<LayerParts> kinds;
  for (int64_t layer = 0; layer < layers; ++layer)
    if (std::ranges::find(kinds, partsOf(layer)) == kinds.end())
      kinds.push_back(partsOf(layer));
  return kinds;
}

namespace {

/// Collects parameters; the spec supplies the initial deviation.
class List {
public:
  explicit List(const ModelSpec &spec) : spec(spec) {}

  void weight(std::string name, std::vector<int64_t> shape) {
    weight(std::move(name), std::move(shape), spec.initializerRange);
  }
  void weight(std::string name, std::vector<int64_t> shape, double deviation) {
    items.push_back(
        {std::move(name), std::move(shape), Initializer::Normal, deviation});
  }
  void ones(std::string name, int64_t size) {
    items.push_back({std::move(name), {size}, Initializer::Ones});
  }
  void zeros(std::string name, std::vector<int64_t> shape) {
    items.push_back({std::move(name), std::move(shape), Initializer::Zeros});
  }
  void zeros(std::string name, int64_t size) {
    zeros(std::move(name), std::vector<int64_t>{size});
  }
  /// Initial value for which the norm multiplies by 1.
  void rmsNorm(const std::string &name, int64_t size) {
    if (spec.normPlusOne)
      zeros(name + ".weight", size);
    else
      ones(name + ".weight", size);
  }
  void layerNorm(const std::string &name) {
    ones(name + ".weight", spec.hidden);
    if (spec.normBias)
      zeros(name + ".bias", spec.hidden);
  }
  /// The norm of the spec's kind, of activations.
  void norm(std::string_view name) {
    if (spec.norm == NormKind::LayerNorm)
      layerNorm(std::string(name));
    else
      rmsNorm(std::string(name), spec.hidden);
  }
  /// torch.nn.Linear: [out, in].
  void linear(const std::string &name, int64_t in, int64_t out, bool bias) {
    weight(name + ".weight", {out, in});
    if (bias)
      zeros(name + ".bias", out);
  }
  /// transformers' Conv1D: [in, out], always with a bias.
  void conv1d(const std::string &name, int64_t in, int64_t out,
              double deviation) {
    weight(name + ".weight", {in, out}, deviation);
    zeros(name + ".bias", out);
  }

  std::vector<Parameter> items;

private:
  const ModelSpec &spec;
};

std::vector<Parameter> gpt2Layer(const ModelSpec &spec) {
  // Radford et al. 2019, 2.3: initial values of residual projections are
  // divided by the square root of the number of additions.
  double residual =
      spec.initializerRange / std::sqrt(2.0 * double(spec.layers));
  List list(spec);
  list.layerNorm("ln_1");
  list.conv1d("attn.c_attn", spec.hidden, 3 * spec.hidden,
              spec.initializerRange);
  list.conv1d("attn.c_proj", spec.hidden, spec.hidden, residual);
  list.layerNorm("ln_2");
  list.conv1d("mlp.c_fc", spec.hidden, spec.intermediate,
              spec.initializerRange);
  list.conv1d("mlp.c_proj", spec.intermediate, spec.hidden, residual);
  return std::move(list.items);
}

/// A stack of linear layers without biases: [experts, out, in].
void addStack(List &list, const MoeSpec &moe, std::string_view experts,
              std::string_view matrix, int64_t in, int64_t out) {
  list.weight(fmt::format("{}.{}.weight", experts, matrix),
              {moe.experts, out, in});
}

/// The same with biases: [experts, in, out] and [experts, out].
void addFusedStack(List &list, const MoeSpec &moe, const ExpertNames &names,
                   std::string_view matrix, int64_t in, int64_t out) {
  const std::string name = fmt::format("{}.{}", names.experts, matrix);
  list.weight(name, {moe.experts, in, out});
  list.zeros(name + "_bias", {moe.experts, out});
}

void addExperts(List &list, const ModelSpec &spec) {
  const MoeSpec &moe = *spec.moe;
  ExpertNames names = expertNames(spec);
  int64_t hidden = spec.hidden, width = moe.intermediate,
          shared = moe.sharedIntermediate;
  list.linear(std::string(names.router), hidden, moe.experts, moe.routerBias);
  for (Parameter &each : list.items)
    each.keepF32 |= each.name.starts_with(names.router);
  if (moe.selectionBias) {
    list.zeros(fmt::format("{}.e_score_correction_bias", names.router),
               moe.experts);
    list.items.back().frozen = list.items.back().keepF32 = true;
  }
  if (moe.fused) {
    addFusedStack(list, moe, names, names.up, hidden, 2 * width);
    addFusedStack(list, moe, names, names.down, width, hidden);
    return;
  }
  if (!moe.fusedGateUp)
    addStack(list, moe, names.experts, names.gate, hidden, width);
  addStack(list, moe, names.experts, names.up, hidden,
           moe.fusedGateUp ? 2 * width : width);
  addStack(list, moe, names.experts, names.down, width, hidden);
  if (!shared)
    return;
  auto linear = [&](std::string_view matrix, int64_t in, int64_t out) {
    list.linear(fmt::format("{}.{}", names.shared, matrix), in, out, false);
  };
  if (!moe.fusedGateUp)
    linear(names.gate, hidden, shared);
  linear(names.up, hidden, moe.fusedGateUp ? 2 * shared : shared);
  linear(names.down, shared, hidden);
  if (moe.sharedGate)
    list.linear(fmt::format("{}_gate", names.shared), hidden, 1, false);
}

void addLatentAttention(List &list, const ModelSpec &spec) {
  const LatentSpec &latent = *spec.latent;
  const ModuleNames names = moduleNames(spec);
  auto linear = [&](std::string_view name, int64_t in, int64_t out, bool bias) {
    list.linear(std::string(name), in, out, bias);
  };
  if (latent.queryRank) {
    linear(names.queryDown, spec.hidden, latent.queryRank, spec.qkvBias);
    list.rmsNorm(std::string(names.queryDownNorm), latent.queryRank);
    linear(names.queryUp, latent.queryRank, spec.queryWidth(), false);
  } else {
    linear(names.query, spec.hidden, spec.queryWidth(), false);
  }
  linear(names.latent, spec.hidden, latent.cacheWidth(), spec.qkvBias);
  list.rmsNorm(std::string(names.latentNorm), latent.rank);
  linear(names.latentUp, latent.rank,
         spec.heads * (latent.unrotated + latent.valueDim), false);
  linear(names.output, spec.outputWidth(), spec.hidden, spec.outputBias);
}

void addAttention(List &list, const ModelSpec &spec) {
  if (spec.latent)
    return addLatentAttention(list, spec);
  const ModuleNames names = moduleNames(spec);
  int64_t hidden = spec.hidden, query = spec.queryWidth(),
          keyValue = spec.keyValueWidth();
  auto linear = [&](std::string_view name, int64_t in, int64_t out, bool bias) {
    list.linear(std::string(name), in, out, bias);
  };
  if (spec.qkvLayout == QkvLayout::Apart) {
    linear(names.query, hidden, query, spec.qkvBias);
    linear(names.key, hidden, keyValue, spec.qkvBias);
    linear(names.value, hidden, keyValue, spec.qkvBias);
    linear(names.output, query, hidden, spec.outputBias);
  } else {
    linear(names.output, query, hidden, spec.outputBias);
    linear(names.qkv, hidden, query + 2 * keyValue, spec.qkvBias);
  }
  if (spec.attentionSinks)
    list.weight(std::string(names.sinks), {spec.heads});
  if (spec.qkNorm == QkNorm::None)
    return;
  const bool isWide = spec.qkNorm == QkNorm::Width;
  list.rmsNorm(std::string(names.queryNorm), isWide ? query : spec.headDim);
  list.rmsNorm(std::string(names.keyNorm), isWide ? keyValue : spec.headDim);
}

/// A mixer of Mamba-2. Without initial steps all matrices are initialized like
/// others.
void addMixer(List &list, const ModelSpec &spec) {
  const StateSpaceSpec &mixer = *spec.stateSpace;
  const std::string path(moduleNames(spec).mixer);
  auto vector = [&](const char *name, Initializer initializer) {
    list.items.push_back(
        {fmt::format("{}.{}", path, name), {mixer.heads}, initializer});
  };
  vector("dt_bias",
         mixer.initialSteps ? Initializer::StepBias : Initializer::Ones);
  if (mixer.initialSteps)
    list.items.back().limits = *mixer.initialSteps;
  vector("A_log", Initializer::LogOfIndex);
  vector("D", Initializer::Ones);
  // torch.nn.Linear and Conv1d begin between the roots of 1 / inputs.
  auto uniform = [&](int64_t inputs, double scale) {
    if (!mixer.initialSteps)
      return;
    list.items.back().initializer = Initializer::Uniform;
    list.items.back().deviation = scale / std::sqrt(double(inputs));
  };
  list.weight(path + ".conv1d.weight", {mixer.channels(), 1, mixer.kernel});
  uniform(mixer.kernel, 1);
  list.items.back().keepF32 = true; // few elements, and not of a matmul
  if (mixer.convBias)
    list.zeros(path + ".conv1d.bias", mixer.channels());
  list.linear(path + ".in_proj", spec.hidden, mixer.projected(), mixer.bias);
  list.ones(path + ".norm.weight", mixer.width());
  list.weight(path + ".out_proj.weight", {spec.hidden, mixer.width()});
  uniform(mixer.width(),
          mixer.rescaled ? 1 / std::sqrt(double(spec.layers)) : 1);
  if (mixer.bias)
    list.zeros(path + ".out_proj.bias", spec.hidden);
}

void addMlp(List &list, const ModelSpec &spec) {
  const ModuleNames names = moduleNames(spec);
  auto linear = [&](std::string_view name, int64_t in, int64_t out) {
    list.linear(std::string(name), in, out, spec.mlpBias);
  };
  if (spec.fusedGateUp) {
    linear(names.gateUp, spec.hidden, 2 * spec.intermediate);
  } else {
    if (spec.gatedMlp)
      linear(names.gate, spec.hidden, spec.intermediate);
    linear(names.up, spec.hidden, spec.intermediate);
  }
  linear(names.down, spec.intermediate, spec.hidden);
}

std::vector<Parameter> llamaLayer(const ModelSpec &spec, LayerParts parts) {
  List list(spec);
  if (parts.recurrent)
    addMixer(list, spec);
  else
    addAttention(list, spec);
  if (parts.sparse)
    addExperts(list, spec);
  else if (spec.hasMlp())
    addMlp(list, spec);
  const ModuleNames names = moduleNames(spec);
  if (spec.residual.preNorms)
    list.norm(names.attentionNorm);
  if (spec.residual.postNorms)
    list.norm(names.attentionPostNorm);
  if (spec.hasMlp() && spec.residual.hasMlpNorm())
    list.norm(names.mlpNorm);
  if (spec.residual.postNorms)
    list.norm(names.mlpPostNorm);
  return std::move(list.items);
}

std::vector<Parameter> bertLayer(const ModelSpec &spec) {
  List list(spec);
  for (const char *each : {"query", "key", "value"})
    list.linear(fmt::format("attention.self.{}", each), spec.hidden,
                spec.hidden, true);
  list.linear("attention.output.dense", spec.hidden, spec.hidden, true);
  list.layerNorm("attention.output.LayerNorm");
  list.linear("intermediate.dense", spec.hidden, spec.intermediate, true);
  list.linear("output.dense", spec.intermediate, spec.hidden, true);
  list.layerNorm("output.LayerNorm");
  return std::move(list.items);
}

/// Parameters before the layers.
void addEmbeddings(List &list, const ModelSpec &spec) {
  switch (spec.family) {
  case Family::Gpt2:
    list.weight("transformer.wte.weight", {spec.vocab, spec.hidden});
    list.weight("transformer.wpe.weight", {spec.maxPositions, spec.hidden});
    break;
  case Family::Bert:
    list.weight("embeddings.word_embeddings.weight", {spec.vocab, spec.hidden});
    list.weight("embeddings.position_embeddings.weight",
                {spec.maxPositions, spec.hidden});
    list.weight("embeddings.token_type_embeddings.weight",
                {spec.tokenTypes, spec.hidden});
    list.layerNorm("embeddings.LayerNorm");
    break;
  default:
    list.weight(fmt::format("{}.weight", moduleNames(spec).embedding),
                {spec.vocab, spec.hidden});
  }
}

/// What an adapter does not train.
void makeConstant(std::vector<Parameter> &parameters,
                  const AdapterSpec &adapter) {
  for (Parameter &each : parameters) {
    if (adapter.recipe.saves(each.name))
      continue;
    each.frozen = each.constant = true;
    each.isNarrow =
        adapter.hasNarrowBase && each.shape.size() >= 2 && !each.keepF32;
  }
}

/// The factors of one matrix. To be trained, A is random and B zero, so that
/// training begins with the model as it is. Those of slots are filled by the
/// runtime and never quantized (`frozen`).
std::vector<Parameter> factorsOf(std::string_view path, int64_t in, int64_t out,
                                 const AdapterSpec &adapter) {
  const int64_t slots = adapter.slots(),
                rank =
                    slots ? adapter.recipe.rank : adapter.recipe.rankOf(path);
  Parameter first, second;
  first.name = fmt::format("{}{}.weight", path, kAdapterIn);
  second.name = fmt::format("{}{}.weight", path, kAdapterOut);
  second.initializer = Initializer::Zeros;
  if (slots == 0) {
    first.shape = {rank, in}, second.shape = {out, rank};
    first.deviation = 1 / static_cast<double>(rank);
    return {first, second};
  }
  first.shape = {slots, rank, in}, second.shape = {slots, rank, out};
  first.initializer = Initializer::Zeros;
  first.frozen = second.frozen = true;
  return {first, second};
}

/// What an adapter has of one matrix with magnitudes. Those to be trained, and
/// the norms, begin as the norms of the base's rows, which the runtime writes.
std::vector<Parameter> magnitudesOf(std::string_view path, int64_t out,
                                    const AdapterSpec &adapter) {
  Parameter magnitude, norm;
  magnitude.name = fmt::format("{}{}", path, kMagnitude);
  if (adapter.slots() > 0) {
    magnitude.shape = {adapter.slots(), 1, out};
    magnitude.initializer = Initializer::Zeros;
    magnitude.frozen = true;
    return {magnitude};
  }
  norm.name = fmt::format("{}{}", path, kWeightNorm);
  magnitude.shape = norm.shape = {out};
  magnitude.initializer = norm.initializer = Initializer::Ones;
  norm.frozen = norm.constant = true;
  return {magnitude, norm};
}

/// Adds factors after their matrices; if they are trained, the parameters
/// become constant.
std::vector<Parameter> withAdapters(std::vector<Parameter> parameters,
                                    const ModelSpec &spec) {
  constexpr std::string_view suffix = ".weight";
  if (spec.adapter->slots() == 0)
    makeConstant(parameters, *spec.adapter);
  std::vector<Parameter> all;
  for (Parameter &each : parameters) {
    all.push_back(each);
    const std::string_view name = each.name;
    if (each.shape.size() != 2 || each.keepF32 || !name.ends_with(suffix))
      continue;
    const std::string_view path = name.substr(0, name.size() - suffix.size());
    if (!spec.adapter->adapts(path))
      continue;
    const bool isConv1d = spec.family == Family::Gpt2; // [in, out]
    const int64_t in = each.shape[isConv1d ? 0 : 1],
                  out = each.shape[isConv1d ? 1 : 0];
    std::ranges::move(factorsOf(path, in, out, *spec.adapter),
                      std::back_inserter(all));
    if (spec.adapter->hasMagnitudes())
      std::ranges::move(magnitudesOf(path, out, *spec.adapter),
                        std::back_inserter(all));
  }
  return all;
}

} // namespace

bool AdapterSpec::adapts(std::string_view path) const {
  return std::ranges::any_of(recipe.target, [&](std::string_view target) {
    return (slots() > 0 && target == "all") ||
           recipe::endsWithName(path, target);
  });
}

std::vector<Parameter> layerParameters(const ModelSpec &spec,
                                       LayerParts parts) {
  std::vector<Parameter> all = spec.family == Family::Gpt2 ? gpt2Layer(spec)
                               : spec.family == Family::Bert
                                   ? bertLayer(spec)
                                   : llamaLayer(spec, parts);
  return spec.adapter ? withAdapters(std::move(all), spec) : all;
}

/// transformers' BertPooler, and a linear layer of one row.
static void addCrossEncoderHead(List &list, int64_t hidden) {
  list.linear("pooler.dense", hidden, hidden, true);
  list.linear("classifier", hidden, 1, true);
  for (Parameter &each : std::span(list.items).last(2))
    each.keepF32 = true;
}

std::vector<Parameter> parameters(const ModelSpec &spec) {
  List list(spec);
  addEmbeddings(list, spec);
  const bool isTrained = spec.adapter && spec.adapter->slots() == 0;
  if (isTrained)
    makeConstant(list.items, *spec.adapter);
  const std::vector<LayerParts> kinds = spec.kindsOfLayers();
  std::vector<std::vector<Parameter>> ofKinds;
  for (LayerParts kind : kinds)
    ofKinds.push_back(layerParameters(spec, kind));
  for (int64_t layer = 0; layer < spec.layers; ++layer)
    for (const Parameter &each : ofKinds[size_t(
             std::ranges::find(kinds, spec.partsOf(layer)) - kinds.begin())]) {
      list.items.push_back(each);
      list.items.back().name = layerPrefix(spec, layer) + each.name;
      list.items.back().layer = layer;
    }
  if (spec.isEncoder()) {
    if (spec.hasScore)
      addCrossEncoderHead(list, spec.hidden);
    return std::move(list.items);
  }
  List after(spec);
  after.norm(moduleNames(spec).norm);
  if (!spec.tieWordEmbeddings && !spec.hasScore)
    after.weight(fmt::format("{}.weight", moduleNames(spec).head),
                 {spec.vocab, spec.hidden});
  if (isTrained)
    makeConstant(after.items, *spec.adapter);
  if (spec.hasScore) { // trained with an adapter, too
    after.weight(std::string(kScoreHead), {1, spec.hidden});
    after.items.back().keepF32 = true;
  }
  if (spec.hasValue) { // likewise
    after.linear(std::string(kValueHead), spec.hidden, 1, /*bias=*/true);
    for (Parameter &each : std::span(after.items).last(2))
      each.keepF32 = true;
  }
  std::ranges::move(after.items, std::back_inserter(list.items));
  return std::move(list.items);
}

static int64_t countElements(const std::vector<Parameter> &parameters) {
  int64_t count = 0;
  for (const Parameter &each : parameters)
    count += each.elements();
  return count;
}

int64_t parameterCount(const ModelSpec &spec) {
  // Computed from one layer of each kind, so that a hostile layer count costs
  // nothing.
  ModelSpec outside = spec;
  outside.layers = 0;
  int64_t count = countElements(parameters(outside));
  for (LayerParts kind : spec.kindsOfLayers()) {
    int64_t layers = 0;
    for (int64_t layer = 0; layer < spec.layers; ++layer)
      layers += spec.partsOf(layer) == kind;
    count += layers * countElements(layerParameters(spec, kind));
  }
  return count;
}

int64_t activeParameterCount(const ModelSpec &spec) {
  if (!spec.moe)
    return parameterCount(spec);
  // Subtracts all experts but the chosen ones: three matrices each, and their
  // biases.
  const MoeSpec &moe = *spec.moe;
  int64_t each = 3 * moe.intermediate * spec.hidden;
  if (moe.fused)
    each += 2 * moe.intermediate + spec.hidden;
  return parameterCount(spec) -
         moe.sparseLayers() * (moe.experts - moe.chosen) * each;
}

std::string describe(const ModelSpec &spec) {
  std::string heads =
      spec.heads == spec.kvHeads
          ? fmt::format("{} heads", spec.heads)
          : fmt::format("{} heads ({} kv)", spec.heads, spec.kvHeads);
  std::string experts, active, recurrent;
  if (const auto &mixer = spec.stateSpace)
    recurrent = fmt::format(
        ", {} recurrent layers of {} heads of {} with state {}",
        mixer->recurrentLayers(), mixer->heads, mixer->headDim, mixer->state);
  if (spec.moe) {
    experts = fmt::format(", {} of {} experts of {} in {} layers",
                          spec.moe->chosen, spec.moe->experts,
                          spec.moe->intermediate, spec.moe->sparseLayers());
    active = fmt::format(" ({} active)", activeParameterCount(spec));
  }
  return fmt::format(
      "{}: {} layers, hidden {}, {} of {}, mlp {}{}{}, vocabulary {}, "
      "{} positions, {} parameters{}",
      name(spec.family), spec.layers, spec.hidden, heads, spec.headDim,
      spec.intermediate, recurrent, experts, spec.vocab, spec.maxPositions,
      parameterCount(spec), active);
}

} // namespace tessera::models
