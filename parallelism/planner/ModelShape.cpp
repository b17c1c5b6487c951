#include "parallelism/planner/ModelShape.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "models/ConfigFields.h"
#include "models/HfConfig.h"
#include "runtime/support/Text.h"

namespace tessera::planner {
namespace {

using models::ConfigFields;
using models::Json;

constexpr int64_t maxFileBytes = 1 << 20;
// Beyond any model; layers * experts * 3 * hidden * width stays below 2^63.
constexpr int64_t maxLayers = 1 << 12;
constexpr int64_t maxWidth = 1 << 17;
constexpr int64_t maxIntermediate = 1 << 20;
constexpr int64_t maxHeads = 1 << 12;
constexpr int64_t maxHeadDim = 1 << 12;
constexpr int64_t maxExperts = 1 << 12;
constexpr int64_t maxVocab = 1 << 24;
constexpr int64_t maxPositions = int64_t(1) << 30;

/// A size where absent and 0 both mean "none".
int64_t sizeOrNone(ConfigFields &fields, const char *key, int64_t most) {
  const Json *value = fields.find(key);
  if (!value || (value->is_number_integer() && *value == 0))
    return 0;
  return fields.size(key, most);
}

/// Whether a rate is not 0; `missing` where the key is.
bool hasDropout(ConfigFields &fields, const char *key, bool missing) {
  const Json *rate = fields.find(key);
  return rate && rate->is_number() ? rate->get<double>() > 0 : missing;
}

void readGpt2(ConfigFields &fields, ModelShape &shape) {
  shape.hidden = fields.size({"n_embd", "hidden_size"}, maxWidth);
  shape.layers = fields.size({"n_layer", "num_hidden_layers"}, maxLayers);
  shape.heads = fields.size({"n_head", "num_attention_heads"}, maxHeads);
  shape.maxPositions =
      fields.size({"n_positions", "max_position_embeddings"}, maxPositions);
  shape.intermediate =
      fields.size("n_inner", maxIntermediate, 4 * shape.hidden);
  shape.kvHeads = shape.heads;
  shape.gated = false;
  shape.learnedPositions = true;
  shape.dropout = hasDropout(fields, "attn_pdrop", true);
  shape.tied = fields.flag("tie_word_embeddings", true);
  if (fields.ok() && shape.hidden % shape.heads != 0)
    fields.fail("n_embd", fmt::format("{} is not a multiple of n_head = {}",
                                      shape.hidden, shape.heads));
  shape.headDim = shape.valueHeadDim = shape.hidden / shape.heads;
}

/// Llama and its descendants: grouped queries, gated MLP.
void readLlamaLike(ConfigFields &fields, ModelShape &shape) {
  shape.hidden = fields.size("hidden_size", maxWidth);
  shape.layers = fields.size("num_hidden_layers", maxLayers);
  shape.heads = fields.size("num_attention_heads", maxHeads);
  shape.kvHeads = fields.size("num_key_value_heads", maxHeads, shape.heads);
  shape.maxPositions = fields.size("max_position_embeddings", maxPositions);
  shape.intermediate = sizeOrNone(fields, "intermediate_size", maxIntermediate);
  shape.tied = fields.flag("tie_word_embeddings", false);
  shape.dropout = hasDropout(fields, "attention_dropout", false);
  if (fields.ok() && shape.heads % shape.kvHeads != 0)
    fields.fail("num_attention_heads",
                fmt::format("{} is not a multiple of num_key_value_heads = {}",
                            shape.heads, shape.kvHeads));
  shape.headDim = sizeOrNone(fields, "head_dim", maxHeadDim);
  if (shape.headDim == 0) {
    if (fields.ok() && shape.hidden % shape.heads != 0)
      fields.fail("hidden_size",
                  fmt::format("{} is not a multiple of num_attention_heads = "
                              "{}; give head_dim",
                              shape.hidden, shape.heads));
    shape.headDim = std::max<int64_t>(1, shape.hidden / shape.heads);
  }
  shape.valueHeadDim = shape.headDim;
  shape.headNorms = shape.family.starts_with("qwen3");
}

/// Every layer after the dense ones must be sparse: stages differ only in the
/// number of layers of each kind.
void readExperts(ConfigFields &fields, ModelShape &shape) {
  if (shape.family == "mixtral") {
    shape.experts = fields.size("num_local_experts", maxExperts);
    shape.expertWidth = shape.intermediate;
    shape.intermediate = 0;
  } else {
    shape.experts = fields.size("num_experts", maxExperts);
    shape.expertWidth = fields.size("moe_intermediate_size", maxIntermediate);
    shape.sharedWidth =
        sizeOrNone(fields, "shared_expert_intermediate_size", maxIntermediate);
    fields.requireNeutral(
        "decoder_sparse_step", 1,
        "the planner knows models whose layers are all sparse "
        "after the first");
    fields.requireNeutral(
        "mlp_only_layers", Json::array(),
        "the planner knows models whose layers are all sparse");
    shape.intermediate = 0;
  }
  shape.expertsPerToken = fields.size("num_experts_per_tok", maxExperts);
  if (fields.ok() && shape.expertsPerToken > shape.experts)
    fields.fail("num_experts_per_tok",
                fmt::format("{} is more than there are experts, {}",
                            shape.expertsPerToken, shape.experts));
  if (fields.ok() && shape.denseLayers > shape.layers)
    fields.fail("first_k_dense_replace",
                fmt::format("{} is more than there are layers, {}",
                            shape.denseLayers, shape.layers));
}

/// Whether the first layers are dense and all others have experts.
bool areDenseFirst(const std::vector<bool> &sparse) {
  return std::ranges::is_sorted(sparse);
}

/// The compiler's reader bounds the number of parameters alone.
void checkSizes(const models::ModelSpec &spec, ConfigFields &fields) {
  const auto check = [&](const char *key, int64_t value, int64_t most) {
    if (value > most)
      fields.fail(key,
                  fmt::format("{} is more than the planner's {}", value, most));
  };
  check("vocab_size", spec.vocab, maxVocab);
  check("hidden_size", spec.hidden, maxWidth);
  check("num_hidden_layers", spec.layers, maxLayers);
  check("num_attention_heads", spec.heads, maxHeads);
  check("head_dim", spec.headDim, maxHeadDim);
  check("intermediate_size", spec.intermediate, maxIntermediate);
  check("max_position_embeddings", spec.maxPositions, maxPositions);
  if (!spec.moe)
    return;
  check("num_experts", spec.moe->experts, maxExperts);
  check("moe_intermediate_size", spec.moe->intermediate, maxIntermediate);
  check("shared_expert_intermediate_size", spec.moe->sharedIntermediate,
        64 * maxIntermediate);
}

/// Of a family that only the compiler's reader knows.
Status checkPlanned(const models::ModelSpec &spec, ConfigFields &fields) {
  if (spec.isEncoder())
    fields.fail("model_type", "the planner plans training of decoders, and "
                              "this is an encoder");
  if (spec.moe && !areDenseFirst(spec.moe->sparse))
    fields.fail("model_type",
                "the planner knows models whose layers are all sparse after "
                "the first, dense ones");
  if (spec.stateSpace)
    fields.fail("model_type", "the planner does not know the costs of "
                              "recurrent layers; compile with the axes named, "
                              "such as --mesh data=4");
  checkSizes(spec, fields);
  return fields.status();
}

} // namespace

ModelShape shapeOf(const models::ModelSpec &spec) {
  ModelShape shape;
  shape.family = models::name(spec.family);
  shape.layers = spec.layers;
  shape.hidden = spec.hidden;
  shape.vocab = spec.vocab;
  shape.maxPositions = spec.maxPositions;
  shape.tied = spec.tieWordEmbeddings;
  shape.learnedPositions = !spec.rope;
  shape.dropout = spec.attentionDropout > 0;
  shape.heads = spec.heads;
  shape.kvHeads = spec.kvHeads;
  shape.headNorms = spec.qkNorm != models::QkNorm::None;
  shape.headDim = shape.valueHeadDim = spec.headDim;
  if (spec.latent) {
    shape.queryRank = spec.latent->queryRank;
    shape.keyValueRank = spec.latent->rank;
    shape.rotaryDim = spec.latent->rotated;
    shape.valueHeadDim = spec.latent->valueDim;
  }
  if (!spec.windows.empty())
    shape.window = std::ranges::max(spec.windows);
  if (shape.window > 0)
    shape.fullLayers = std::ranges::count(spec.windows, 0);
  shape.gated = spec.gatedMlp;
  shape.intermediate = spec.intermediate;
  if (!spec.moe)
    return shape;
  shape.experts = spec.moe->experts;
  shape.expertsPerToken = spec.moe->chosen;
  shape.expertWidth = spec.moe->intermediate;
  shape.sharedWidth = spec.moe->sharedIntermediate;
  shape.denseLayers = spec.layers - spec.moe->sparseLayers();
  if (shape.denseLayers == 0)
    shape.intermediate = 0;
  return shape;
}

int64_t ModelShape::attentionParameters() const {
  int64_t norms = 2 * hidden;
  if (keyValueRank == 0)
    return hidden * (queryWidth() + 2 * keyValueWidth()) +
           queryWidth() * hidden + norms;
  int64_t queries =
      queryRank ? queryRank * (hidden + queryWidth()) : hidden * queryWidth();
  int64_t plain = headDim - rotaryDim; // of a head's keys, not rotated
  int64_t keysValues = hidden * (keyValueRank + rotaryDim) +
                       keyValueRank * heads * (plain + valueHeadDim);
  return queries + keysValues + heads * valueHeadDim * hidden + norms;
}

int64_t ModelShape::denseMlpParameters() const {
  return (gated ? 3 : 2) * hidden * intermediate;
}
int64_t ModelShape::expertParameters() const {
  return (gated ? 3 : 2) * hidden * expertWidth;
}
int64_t ModelShape::sharedParameters() const {
  return (gated ? 3 : 2) * hidden * sharedWidth + hidden * experts;
}
int64_t ModelShape::embeddingParameters() const {
  return (vocab + (learnedPositions ? maxPositions : 0)) * hidden;
}
int64_t ModelShape::headParameters() const {
  return (tied ? 0 : vocab * hidden) + hidden;
}

int64_t ModelShape::parameters() const {
  int64_t sparsePart =
      sparseLayers() * (sharedParameters() + experts * expertParameters());
  return layers * attentionParameters() +
         (layers - sparseLayers()) * denseMlpParameters() + sparsePart +
         embeddingParameters() + headParameters();
}

int64_t ModelShape::activeParameters() const {
  int64_t sparsePart = sparseLayers() * (sharedParameters() +
                                         expertsPerToken * expertParameters());
  return layers * attentionParameters() +
         (layers - sparseLayers()) * denseMlpParameters() + sparsePart +
         vocab * hidden;
}

double ModelShape::flopsPerToken(int64_t sequence, bool allKeys) const {
  double keys = double(sequence) / (allKeys ? 1 : 2), near = keys;
  if (window > 0 && window < sequence) // the ramp at the start, then the band
    near = std::min(keys, double(window) *
                              (1 - double(window) / 2 / double(sequence)));
  const double perKey =
                   3.0 * 2 * double(heads) * double(headDim + valueHeadDim),
               perLayer = perKey * near;
  double weights = double(activeParameters());
  double result = 6 * weights + double(layers - fullLayers) * perLayer +
                  double(fullLayers) * perKey * keys;
  if (futureLayers > 0) {
    double block = double(
        attentionParameters() + 2 * hidden * hidden +
        (experts ? sharedParameters() + expertsPerToken * expertParameters()
                 : denseMlpParameters()) +
        vocab * hidden);
    result += double(futureLayers) * (6 * block + perLayer);
  }
  return result;
}

StatusOr<ModelShape> parseModelShape(std::string_view text,
                                     const std::string &file) {
  StatusOr<Json> object = models::parseConfigObject(text, file);
  if (!object.ok())
    return object.status();
  ConfigFields fields(*object, file);
  ModelShape shape;
  shape.family = fields.text("model_type", "");
  if (fields.ok() && shape.family.empty())
    fields.fail("model_type", "is missing; add it");
  if (!fields.ok())
    return fields.status();
  // Families whose specs need not state what costs nothing.
  constexpr std::array<std::string_view, 8> own = {
      "gpt2",  "llama",   "mistral",   "qwen2",
      "qwen3", "mixtral", "qwen2_moe", "qwen3_moe"};
  if (!std::ranges::count(own, shape.family)) {
    StatusOr<models::ModelSpec> spec = models::parseHfConfig(text, file);
    if (!spec.ok())
      return spec.status();
    TESSERA_RETURN_IF_ERROR(checkPlanned(*spec, fields));
    shape = shapeOf(*spec);
    shape.futureLayers = sizeOrNone(fields, "num_nextn_predict_layers", 64);
    return fields.ok() ? StatusOr<ModelShape>(shape) : fields.status();
  }
  shape.vocab = fields.size("vocab_size", maxVocab);
  if (shape.family == "gpt2")
    readGpt2(fields, shape);
  else
    readLlamaLike(fields, shape);
  if (shape.family == "mistral" || shape.family == "mixtral")
    shape.window = sizeOrNone(fields, "sliding_window", maxPositions);
  if (shape.family == "mixtral" || shape.family.ends_with("_moe"))
    readExperts(fields, shape);
  if (shape.intermediate == 0 && shape.layers > shape.sparseLayers())
    fields.fail("intermediate_size", "is missing; add it");
  if (!fields.ok())
    return fields.status();
  return shape;
}

StatusOr<ModelShape> loadModelShape(const std::string &path) {
  std::error_code failure;
  std::string file = path;
  if (std::filesystem::is_directory(path, failure))
    file = (std::filesystem::path(path) / "config.json").string();
  StatusOr<std::string> text = readTextFile(file, maxFileBytes);
  if (!text.ok())
    return text.status();
  return parseModelShape(*text, file);
}

} // namespace tessera::planner
