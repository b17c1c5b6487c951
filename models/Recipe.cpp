// Checks a recipe against a model, and derives buckets from both.
#include "models/Recipe.h"
#include "models/RewardHead.h"
#include "runtime/recipe/BaseLayout.h"
#include "runtime/support/QuantizedLayout.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace tessera::models {

/// What a training step has no counterpart of.
static Status checkNumerics(const Recipe::Inference &inference) {
  // Keys that a training step's attention adds up at a time.
  constexpr int64_t kTrainedTile = 64;
  if (inference.numerics != recipe::Numerics::Training)
    return Status::success();
  if (inference.quant != Quant::None || inference.kv != KvKind::Auto)
    return Status::error("inference.numerics: training has no quantized "
                         "weights or keys; set inference.numerics: inference, "
                         "or leave inference.quant and inference.kv out");
  if (inference.activations != recipe::Activations::Auto)
    return Status::error("inference.activations: inference.numerics: training "
                         "has no quantized activations; leave it out, or set "
                         "inference.numerics: inference");
  if (inference.page != kTrainedTile)
    return Status::error("inference.page = {}: inference.numerics: training "
                         "has pages of {} tokens; leave inference.page out, or "
                         "set inference.numerics: inference",
                         inference.page, kTrainedTile);
  return Status::success();
}

/// What does not apply to states of recurrent layers.
static Status checkRecurrent(const Recipe::Inference &inference,
                             const ModelSpec &spec) {
  if (!spec.stateSpace)
    return Status::success();
  if (inference.numerics == recipe::Numerics::Training)
    return Status::error("inference.numerics: training is not supported of the "
                         "recurrent layers of {}, whose programs divide "
                         "sequences differently; set inference.numerics: "
                         "inference",
                         name(spec.family));
  const char *key = inference.kv != KvKind::Auto ? "inference.kv"
                    : inference.pages > 0        ? "inference.pages"
                                                 : nullptr;
  if (key && spec.stateSpace->recurrentLayers() == spec.layers)
    return Status::error("{}: all layers of this {} are recurrent; it has no "
                         "KV cache",
                         key, name(spec.family));
  return Status::success();
}

static Status checkInference(const Recipe &recipe, const ModelSpec &spec) {
  int64_t page = recipe.inference.page;
  int64_t needed = (inferenceContext(spec, recipe) + page - 1) / page;
  int64_t pages = recipe.inference.pages ? recipe.inference.pages
                                         : needed * recipe.inference.batch;
  if (pages > INT32_MAX / page)
    return Status::error(
        "a KV cache of {} pages of {} tokens exceeds 2^31 tokens; lower "
        "inference.pages, inference.batch or inference.context",
        pages, page);
  if (pages < needed)
    return Status::error(
        "inference.pages = {} is less than the {} pages of one sequence of {} "
        "tokens; raise it, or lower inference.context",
        recipe.inference.pages, needed, inferenceContext(spec, recipe));
  if (recipe.inference.activations == recipe::Activations::Int8 &&
      recipe.compute != Precision::Bf16)
    return Status::error("inference.activations: int8 requires a bf16 program; "
                         "set precision.compute: bf16, or leave it out");
  TESSERA_RETURN_IF_ERROR(checkRecurrent(recipe.inference, spec));
  return checkNumerics(recipe.inference);
}

static Status checkEncoder(const Recipe &recipe, const ModelSpec &spec,
                           Mode mode) {
  if (recipe.inference.kv != KvKind::Auto)
    return Status::error(
        "inference.kv: {} is an encoder, which has no KV cache",
        name(spec.family));
  if (recipe.inference.activations != recipe::Activations::Auto)
    return Status::error("inference.activations: {} is an encoder, for which "
                         "int8 is not supported; leave it out",
                         name(spec.family));
  if (recipe.adapter.kind != recipe::AdapterKind::None)
    return Status::error("adapter.kind: {} is an encoder, for which adapters "
                         "are not supported; leave the adapter keys out",
                         name(spec.family));
  if (mode == Mode::Train)
    return Status::error("{} is an encoder, whose training is not supported; "
                         "use tessera {}, or compile with --mode infer",
                         name(spec.family), spec.hasScore ? "rerank" : "embed");
  if (recipe.attention.prompts != recipe::Prompts::Causal)
    return Status::error("attention.prompts: {} is an encoder, whose tokens "
                         "all see each other; leave it out",
                         name(spec.family));
  const bool hasPooling = recipe.inference.pooling != Pooling::Model,
             hasNormalize = recipe.inference.normalize != Normalize::Model;
  if (spec.hasScore && (hasPooling || hasNormalize))
    return Status::error("inference.pooling and inference.normalize apply to "
                         "embeddings; this {} is a cross-encoder, which gives "
                         "scores: leave them out",
                         name(spec.family));
  if (!spec.hasScore && !(hasPooling && hasNormalize))
    return Status::error("inference.pooling and inference.normalize have no "
                         "default without the model's directory; set them");
  return Status::success();
}

// Parameters of one layer of each kind, by their names in it. Modules are the
// same in all layers of a kind.
static std::vector<Parameter> layersOfEachKind(const ModelSpec &spec) {
  std::vector<Parameter> all;
  for (LayerParts parts : spec.kindsOfLayers())
    std::ranges::move(layerParameters(spec, parts), std::back_inserter(all));
  return all;
}

// Paths in a layer of the linear layers that adapters fit.
static std::vector<std::string> linearLayers(const ModelSpec &spec) {
  std::vector<std::string> names;
  for (const Parameter &each : layersOfEachKind(spec)) {
    std::string_view path = each.name;
    if (each.shape.size() != 2 || each.keepF32 || !path.ends_with(".weight"))
      continue;
    path.remove_suffix(std::string_view(".weight").size());
    if (std::ranges::find(names, path) == names.end())
      names.emplace_back(path);
  }
  return names;
}

// Codes of a base are stored in whole micropanels, which kernels read along
// rows and along columns. Groups of nf4 and of stored weights are consecutive
// weights of a row; embeddings and heads are left as they are.
static Status checkQuantizedBase(const Recipe &recipe, const ModelSpec &spec) {
  const std::string_view base = name(recipe.adapter.base);
  const QuantizedLayout layout = *baseLayout(recipe);
  if (spec.moe && spec.moe->fused)
    return Status::error("adapter.base: {} does not support the experts of "
                         "this {}; choose bf16",
                         base, name(spec.family));
  if (spec.moe && layout.nf4())
    return Status::error("adapter.base: nf4 does not support the experts of "
                         "this {}; choose int4, int8 or bf16",
                         name(spec.family));
  const int64_t block = layout.nf4() ? QuantizedLayout::kNf4Group : kQuantBlock;
  const bool isTransposed = spec.family == Family::Gpt2;
  for (const Parameter &each : layersOfEachKind(spec)) {
    if (each.shape.size() < 2 || each.keepF32)
      continue;
    // Of an expert, where there are several.
    const int64_t first = each.shape[each.shape.size() - 2],
                  last = each.shape.back(), out = isTransposed ? last : first,
                  in = isTransposed ? first : last;
    if (in % block || out % kMicropanel)
      return Status::error("adapter.base: {} stores blocks of {} weights of a "
                           "row and {} rows together, and '{}' is {} × {}; "
                           "choose bf16",
                           base, block, kMicropanel, each.name, out, in);
  }
  return Status::success();
}

/// The same and those outside of layers.
static std::vector<Parameter> distinctParameters(const ModelSpec &spec) {
  std::vector<Parameter> all = layersOfEachKind(spec);
  std::ranges::copy_if(parameters(spec), std::back_inserter(all),
                       [](const Parameter &each) { return each.layer < 0; });
  return all;
}

/// Names of their modules, by the last parts.
static std::vector<std::string>
moduleParts(const std::vector<Parameter> &parameters) {
  std::vector<std::string> names;
  for (const Parameter &each : parameters) {
    std::string_view module = each.name;
    module = module.substr(0, module.rfind('.'));
    names.emplace_back(module.substr(module.rfind('.') + 1));
  }
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  return names;
}

/// The names in the section are those of something that the model has.
static Status checkNames(const Recipe::Adapter &adapter,
                         const ModelSpec &spec) {
  const std::vector<std::string> layers = linearLayers(spec);
  const auto isLayer = [&](std::string_view name) {
    return (adapter.slots > 0 && name == "all") ||
           std::ranges::any_of(layers, [&](const std::string &path) {
             return recipe::endsWithName(path, name);
           });
  };
  for (const std::string &target : adapter.target)
    if (!isLayer(target))
      return Status::error("adapter.target: no linear layer of {} is called "
                           "'{}'; there are {}",
                           name(spec.family), target, fmt::join(layers, ", "));
  const AdapterSpec adapted{adapter};
  for (const std::string &entry : adapter.ranks) {
    const std::string_view own = recipe::rankEntry(entry).first;
    if (std::ranges::none_of(layers, [&](const std::string &path) {
          return adapted.adapts(path) && recipe::endsWithName(path, own);
        }))
      return Status::error("adapter.ranks: no layer of adapter.target is "
                           "called '{}'; all layers of a name have one rank",
                           own);
  }
  const std::vector<Parameter> all = distinctParameters(spec);
  for (const std::string &saved : adapter.modulesToSave) {
    recipe::AdapterRecipe one;
    one.modulesToSave = {saved};
    if (std::ranges::none_of(
            all, [&](const Parameter &each) { return one.saves(each.name); }))
      return Status::error("adapter.modules_to_save: no module of this {} is "
                           "called '{}', in all layers; known modules: {}",
                           name(spec.family), saved,
                           fmt::join(moduleParts(all), ", "));
    if (std::ranges::any_of(layers, [&](const std::string &path) {
          return adapted.adapts(path) && recipe::endsWithName(path, saved);
        }))
      return Status::error("adapter.modules_to_save: '{}' is also of "
                           "adapter.target; it is trained whole, or by factors",
                           saved);
  }
  return Status::success();
}

/// What knows no prompts whose tokens see each other.
static Status checkPrompts(const Recipe &recipe, const ModelSpec &spec,
                           Mode mode) {
  if (recipe.attention.prompts == recipe::Prompts::Causal)
    return Status::success();
  if (spec.hasScore || recipe.task == recipe::Task::Reward)
    return Status::error("attention.prompts: bidirectional is not supported of "
                         "reward models; leave it out");
  if (spec.stateSpace)
    return Status::error("attention.prompts: bidirectional is not supported of "
                         "the recurrent layers of {}; leave it out",
                         name(spec.family));
  if (mode == Mode::Calibrate)
    return Status::error("attention.prompts: bidirectional: calibration reads "
                         "sequences without prompts; leave it out");
  if (mode == Mode::Train)
    return recipe.data.documents == recipe::Documents::Separate
               ? Status::success()
               : Status::error("attention.prompts: bidirectional: prompts are "
                               "of documents; set data.documents: separate");
  const int64_t context = inferenceContext(spec, recipe);
  for (int64_t layer = 0; layer < spec.layers; ++layer)
    if (const int64_t window = spec.window(layer);
        0 < window && window < context)
      return Status::error("attention.prompts: bidirectional: inference does "
                           "not support it with sliding windows; set "
                           "inference.context to the window of {} or less",
                           window);
  return Status::success();
}

/// Of keys that are of training alone.
static Status checkSlots(const Recipe::Adapter &adapter) {
  if (!adapter.ranks.empty() || adapter.dropout > 0 ||
      adapter.scaling != recipe::AdapterScaling::Rank ||
      !adapter.modulesToSave.empty())
    return Status::error("adapter.ranks, adapter.scaling, adapter.dropout and "
                         "adapter.modules_to_save apply to training; slots "
                         "hold factors of any rank up to adapter.rank and "
                         "scale");
  return Status::success();
}

static Status checkAdapter(const Recipe &recipe, const ModelSpec &spec,
                           Mode mode) {
  const bool hasSlots = recipe.adapter.slots > 0;
  if (mode == Mode::Calibrate)
    return Status::error("adapter.kind: calibration is of the model without "
                         "adapters; leave the adapter keys out");
  if (mode == Mode::Infer && !hasSlots)
    return Status::error("adapter.kind: inference programs hold adapters in "
                         "slots; set adapter.slots, or leave the adapter keys "
                         "out");
  if (mode == Mode::Train && hasSlots)
    return Status::error("adapter.slots = {}: only inference programs have "
                         "slots for adapters; leave it out",
                         recipe.adapter.slots);
  if (hasSlots)
    TESSERA_RETURN_IF_ERROR(checkSlots(recipe.adapter));
  if (isQuantized(recipe.adapter.base)) {
    if (mode != Mode::Train)
      return Status::error("adapter.base: {} is of training; inference "
                           "programs have --quant",
                           name(recipe.adapter.base));
    TESSERA_RETURN_IF_ERROR(checkQuantizedBase(recipe, spec));
  }
  return checkNames(recipe.adapter, spec);
}

/// Of a reward model, or of training one.
static Status checkReward(const Recipe &recipe, const ModelSpec &spec,
                          Mode mode) {
  if (mode == Mode::Train)
    return recipe.task == recipe::Task::Reward
               ? withScoreHead("{}", spec).status()
               : Status::error("this {} is a reward model, which has scores "
                               "instead of logits; set task: reward, or give a "
                               "language model",
                               name(spec.family));
  if (!spec.hasScore)
    return Status::error("task: reward is of training; leave it out, and give "
                         "the directory that tessera export writes of the "
                         "trained run");
  const Recipe::Inference &inference = recipe.inference;
  const bool isPlain = inference.quant == Quant::None &&
                       inference.layout == recipe::WeightLayout::Rows &&
                       inference.activations == recipe::Activations::Auto &&
                       recipe.adapter.kind == recipe::AdapterKind::None;
  if (mode == Mode::Calibrate || !isPlain)
    return Status::error("inference.quant, inference.layout, "
                         "inference.activations and adapters: not supported of "
                         "reward models; leave them out");
  if (inference.kv != KvKind::Auto)
    return Status::error("inference.kv: this {} is a reward model, which has "
                         "no KV cache",
                         name(spec.family));
  return Status::success();
}

Status checkRecipe(const Recipe &recipe, const ModelSpec &spec, Mode mode) {
  if (spec.isEncoder())
    return checkEncoder(recipe, spec, mode);
  if (recipe.inference.pooling != Pooling::Model ||
      recipe.inference.normalize != Normalize::Model)
    return Status::error("inference.pooling and inference.normalize apply only "
                         "to encoders; {} is a decoder",
                         name(spec.family));
  TESSERA_RETURN_IF_ERROR(checkPrompts(recipe, spec, mode));
  if (spec.hasScore || recipe.task == recipe::Task::Reward)
    if (Status status = checkReward(recipe, spec, mode);
        !status.ok() || mode != Mode::Train)
      return status;
  if (recipe.adapter.kind != recipe::AdapterKind::None)
    if (Status status = checkAdapter(recipe, spec, mode); !status.ok())
      return status;
  if (mode != Mode::Train)
    return checkInference(recipe, spec);
  if (recipe.task == recipe::Task::Distill && recipe.distill.top > spec.vocab)
    return Status::error("distill.top = {} is more than the model's vocabulary "
                         "of {} tokens; lower it",
                         recipe.distill.top, spec.vocab);
  if (recipe.batch.sequence > spec.maxPositions)
    return Status::error("batch.sequence = {} is more than the model's {} "
                         "positions; lower it, or raise {} in config.json",
                         recipe.batch.sequence, spec.maxPositions,
                         spec.family == Family::Gpt2
                             ? "n_positions"
                             : "max_position_embeddings");
  return Status::success();
}

/// Weights that are not trained are stored in bf16 if nothing is lost by it:
/// the checkpoint has them so. With another checkpoint, if the recipe says so.
static bool hasNarrowBase(const ModelSpec &spec, const Recipe &recipe) {
  if (recipe.adapter.slots > 0 || recipe.compute != Precision::Bf16)
    return false;
  // What of a quantized base is not quantized is stored as it is computed.
  if (recipe.adapter.base != recipe::AdapterBase::Auto)
    return recipe.adapter.base == recipe::AdapterBase::Bf16 ||
           isQuantized(recipe.adapter.base);
  return spec.checkpointDtype == "bfloat16";
}

ModelSpec withRecipe(ModelSpec spec, const Recipe &recipe) {
  if (recipe.dropout.rate) {
    double rate = *recipe.dropout.rate;
    spec.attentionDropout = rate;
    // In most families the reference drops only attention probabilities; a rate
    // in the recipe applies to every dropout of the architecture.
    const bool ofEmbeddings = spec.family == Family::Gpt2 ||
                              spec.family == Family::StarCoder2 ||
                              spec.family == Family::GptNeoX;
    if (ofEmbeddings)
      spec.embeddingDropout = rate;
    if (ofEmbeddings || spec.family == Family::SeedOss)
      spec.residualDropout = rate;
  }
  spec.hasScore |= recipe.task == recipe::Task::Reward;
  spec.hasValue = recipe.task == recipe::Task::Policy &&
                  recipe.policy.advantages == recipe::Advantages::Gae;
  const Recipe::Adapter &adapter = recipe.adapter;
  if (adapter.kind != recipe::AdapterKind::None)
    spec.adapter = {adapter, hasNarrowBase(spec, recipe)};
  return spec;
}

int64_t inferenceContext(const ModelSpec &spec, const Recipe &recipe) {
  return std::min(recipe.inference.context, spec.maxPositions);
}

std::vector<EncodeBucket> encodeBuckets(const ModelSpec &spec,
                                        const Recipe &recipe) {
  constexpr int64_t shortest = 32;
  const int64_t context = inferenceContext(spec, recipe),
                page = recipe.inference.page;
  std::vector<EncodeBucket> buckets;
  for (int64_t size = shortest;; size *= 2) {
    int64_t least = std::min(size, context);
    // Only an encoder's attention has pages.
    int64_t tokens = least <= page || !spec.isEncoder()
                         ? least
                         : (least + page - 1) / page * page;
    if (buckets.empty() || buckets.back().tokens < tokens) {
      buckets.push_back({1, tokens});
      if (recipe.inference.batch > 1)
        buckets.push_back({recipe.inference.batch, tokens});
    }
    if (size >= context)
      return buckets;
  }
}

std::vector<int64_t> decodeBuckets(int64_t most) {
  std::vector<int64_t> buckets;
  // 1, 2, 4, 8, 12, 16, 24, 32, 48, …
  for (int64_t size = 1; size < most;) {
    buckets.push_back(size);
    int64_t half = 1;
    while (2 * half <= size)
      half *= 2;
    size += size < 8 ? size : half / 2;
  }
  buckets.push_back(most);
  return buckets;
}

std::vector<int64_t> prefillBuckets(const ModelSpec &spec, int64_t chunk) {
  // On CPUs up to 16 rows, of an expert on average, have other kernels, and a
  // token's bits must not depend on how much of its prompt is left.
  constexpr int64_t kFewRows = 16;
  const auto rowsOfExpert = [&](int64_t tokens) {
    return tokens * spec.moe->chosen / spec.moe->experts;
  };
  std::vector<int64_t> buckets{chunk};
  while (buckets.front() >= 8 * kFewRows) { // each costs time to compile
    const int64_t fewer = buckets.front() / 4;
    if (spec.moe && rowsOfExpert(fewer) <= kFewRows)
      break;
    buckets.insert(buckets.begin(), fewer);
  }
  return buckets;
}

} // namespace tessera::models
