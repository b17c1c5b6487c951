// Reads the files of sentence-transformers that define an encoder's embeddings,
// in addition to its config.json: modules.json, the pooling's config.json,
// sentence_bert_config.json, config_sentence_transformers.json.
#pragma once
#include "models/Recipe.h"
#include "runtime/support/ModelFiles.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::models {

struct SentenceModel {
  /// Whether there is a modules.json. Without it, the fields below are the
  /// defaults of sentence-transformers for a bare model.
  bool given = false;
  Pooling pooling = Pooling::Mean;
  Normalize normalize = Normalize::None;
  std::optional<int64_t> maxTokens; ///< of a text, special tokens included
  std::string prompt;               ///< prepended to every text
  std::string poolingFile;          ///< "1_Pooling/config.json"
  bool operator==(const SentenceModel &) const = default;
};

/// Reads those of these files that a model has. As in config.json, every key is
/// understood, known not to change an embedding, or rejected. Modules other
/// than transformer, pooling and normalization are rejected by name.
StatusOr<SentenceModel> loadSentenceModel(const ModelFiles &files);

/// How a reranker's relevance follows from its score.
enum class Relevance : uint8_t { Logistic, Score };

/// What CrossEncoder of sentence-transformers makes of the score of one label:
/// the logistic function, unless the model's files name another activation.
/// Versions from 5.4 write it to config_sentence_transformers.json, those
/// before to config.json; the first that is there counts. Errors: an activation
/// or a prompt that is not supported.
StatusOr<Relevance> loadRelevance(const ModelFiles &files);
/// The file of it besides config.json, which a model may lack.
inline constexpr const char *kRelevanceFile =
    "config_sentence_transformers.json";

/// The files that loadSentenceModel reads for the model.
std::vector<std::string> sentenceModelFiles(const SentenceModel &model);

/// The recipe with settings that it leaves to the model (pooling,
/// normalization, longest text) filled in from an encoder's directory. The
/// recipe of a decoder is returned unchanged.
StatusOr<Recipe> withSentenceModel(Recipe recipe, const ModelSpec &spec,
                                   const std::string &directory);

} // namespace tessera::models
