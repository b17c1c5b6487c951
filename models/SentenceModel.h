// What the files beside a config.json say of an encoder's vectors, as
// sentence-transformers writes them: modules.json, the pooling's config.json,
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
  /// Whether there is a modules.json. What stands below then is what it says;
  /// otherwise it is what sentence-transformers does with a bare model.
  bool given = false;
  Pooling pooling = Pooling::Mean;
  Normalize normalize = Normalize::None;
  std::optional<int64_t> maxTokens; ///< of a text, its special tokens included
  std::string prompt;               ///< stands before every text
  std::string poolingFile;          ///< "1_Pooling/config.json"
  bool operator==(const SentenceModel &) const = default;
};

/// Reads what of these files a model has. As of config.json, every key is
/// understood, known not to change a vector, or refused; modules that are no
/// transformer, pooling or normalization are refused by name.
StatusOr<SentenceModel> loadSentenceModel(const ModelFiles &files);

/// The files that loadSentenceModel read of the model, or would have.
std::vector<std::string> sentenceModelFiles(const SentenceModel &model);

/// The recipe with what the directory of an encoder's config.json says where
/// the recipe leaves it to the model: pooling, normalization, longest text.
/// Any other recipe is given back as it is.
StatusOr<Recipe> withSentenceModel(Recipe recipe, const ModelSpec &spec,
                                   const std::string &directory);

} // namespace tessera::models
