// What tasks ask of a model: log-likelihoods, and greedy generation.
#pragma once
#include "runtime/support/Status.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::eval {

/// Of a text, or of the part that is scored.
struct Likelihood {
  double logprob = 0; ///< natural logarithm, summed over the tokens
  int64_t tokens = 0;
};

/// A turn of a conversation: system, user or assistant.
struct Message {
  std::string role, content;
};
/// The assistant speaks next. Empty: the prompt is a string.
using Conversation = std::vector<Message>;

/// Errors begin with `where`. A chat takes the place of the context, or of the
/// prompt's string, and is rendered by the model's chat template.
struct Continuation {
  std::string where, context, text;
  Conversation chat = {};
};
struct Document {
  std::string where, text;
};
struct Prompt {
  std::string where, text;
  Conversation chat = {};
};

struct GenerationLimits {
  std::vector<std::string> stop;
  int64_t maxTokens = 0;
};

class EvalModel {
public:
  virtual ~EvalModel() = default;
  /// Of each text given its context. The two are tokenized together, as the
  /// model would read them; white space that ends the context counts as the
  /// text's. Both are what lm-evaluation-harness does.
  virtual StatusOr<std::vector<Likelihood>>
  scoreContinuations(std::span<const Continuation> inputs) = 0;
  /// Of whole documents: in windows of `window` tokens (0: the longest), of
  /// which each token is predicted once. The first window begins with the
  /// beginning-of-sequence token, the others with the last token of the window
  /// before; the last one is moved back so that it is full.
  virtual StatusOr<std::vector<Likelihood>>
  scoreDocuments(std::span<const Document> inputs, int64_t window) = 0;
  /// The most likely token each time, until a stop string, which the result
  /// does not have, or an end token.
  virtual StatusOr<std::vector<std::string>>
  generate(std::span<const Prompt> prompts, const GenerationLimits &limits) = 0;
};

} // namespace tessera::eval
