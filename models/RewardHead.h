// Reward models and rerankers in config.json: a sequence classifier of one
// label, as the reference's AutoModelForSequenceClassification has it. A
// decoder scores its last token; BERT, a cross-encoder, its first.
#pragma once
#include "models/ConfigFields.h"
#include "models/ModelSpec.h"

namespace tessera::models {

/// "LlamaForSequenceClassification"; empty if the reference has no such class.
std::string scoreArchitecture(Family family);

/// Whether `architectures` names that class of the family; errors, such as
/// several labels, go to `fields`.
bool readScoreHead(ConfigFields &fields, Family family);

/// The config.json of a reward model made of the model of `text`. Errors: the
/// reference has no class for it.
StatusOr<std::string> withScoreHead(const std::string &text,
                                    const ModelSpec &spec);

} // namespace tessera::models
