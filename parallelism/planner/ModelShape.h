// The sizes of a model, from which the cost of training follows. It reads the
// config.json of some families by itself, because plans need fewer keys than
// programs.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "models/ModelSpec.h"
#include "runtime/support/Status.h"

namespace tessera::planner {

/// Sizes of a decoder-only transformer. All are positive unless a comment says
/// what 0 means; no product of those that a formula here takes overflows 63
/// bits.
struct ModelShape {
  std::string family; ///< the config's model_type
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t vocab = 0;
  int64_t maxPositions = 0; ///< tokens
  bool tied = false;        ///< head and embedding are one table
  bool learnedPositions = false;
  /// The model's own dropout, on attention's probabilities too.
  bool dropout = false;

  int64_t heads = 0;
  int64_t kvHeads = 0;
  bool headNorms = false;   ///< of queries and keys
  int64_t headDim = 0;      ///< of queries and keys
  int64_t valueHeadDim = 0; ///< of values; = headDim but for latent attention
  int64_t window = 0;       ///< tokens that a query sees; 0: all before it
  int64_t fullLayers = 0;   ///< of a model with a window, layers without

  /// Latent attention (DeepSeek-V2, arXiv 2405.04434): ranks of the
  /// compressed queries (0: not compressed) and of keys and values (0: plain
  /// attention), and the rotated part of a head.
  int64_t queryRank = 0;
  int64_t keyValueRank = 0;
  int64_t rotaryDim = 0;

  int64_t intermediate = 0; ///< width of dense MLPs; 0: no layer has one
  bool gated = true;        ///< three matrices an MLP; otherwise two

  int64_t experts = 0; ///< routed ones of a sparse layer; 0: dense model
  int64_t expertsPerToken = 0;
  int64_t expertWidth = 0;
  int64_t sharedWidth = 0; ///< of all shared experts together; 0: none
  int64_t denseLayers = 0; ///< the first so many are dense, others sparse
  /// Layers after the last that predict later tokens (multi-token prediction),
  /// each with a pass through the head (DeepSeek-V3, arXiv 2412.19437, 2.2).
  int64_t futureLayers = 0;

  bool sparse(int64_t layer) const {
    return experts > 0 && layer >= denseLayers;
  }
  int64_t sparseLayers() const {
    return experts > 0 ? layers - denseLayers : 0;
  }
  int64_t queryWidth() const { return heads * headDim; }
  int64_t keyValueWidth() const { return kvHeads * headDim; }

  // Numbers of parameters.
  int64_t attentionParameters() const; ///< of a layer, norms included
  int64_t denseMlpParameters() const;  ///< of a dense layer
  int64_t expertParameters() const;    ///< of one routed expert
  int64_t sharedParameters() const;    ///< shared experts and router
  int64_t embeddingParameters() const; ///< positions included
  int64_t headParameters() const;      ///< 0 if tied; the norm before it
  int64_t parameters() const;          ///< without futureLayers
  int64_t activeParameters() const;    ///< that one token multiplies with

  /// Operations of forward and backward passes for one token in a sequence of
  /// `sequence` tokens, two for each multiply-add: 6 for each weight that a
  /// token meets (the embedding's lookup is none) and attention's products. A
  /// causal query meets half of the keys; `allKeys` counts them all, as
  /// Narayanan et al. (arXiv 2104.04473) and the PaLM paper (2204.02311) do.
  double flopsPerToken(int64_t sequence, bool allKeys = false) const;
};

/// The sizes of a model that the compiler builds.
ModelShape shapeOf(const models::ModelSpec &spec);

/// Reads the text of a config.json of a decoder that the compiler builds
/// (models/HfConfig.h). Ignores keys that do not affect costs. Errors are one
/// line: `file`, the key, what is wrong, what to do.
StatusOr<ModelShape> parseModelShape(std::string_view text,
                                     const std::string &file);

/// Reads `path`: a config.json or a directory that holds one.
StatusOr<ModelShape> loadModelShape(const std::string &path);

} // namespace tessera::planner
