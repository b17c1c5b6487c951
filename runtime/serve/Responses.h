// The JSON that answers are made of.
#pragma once
#include "runtime/serve/Api.h"
#include "runtime/serve/Choice.h"

namespace tessera::serve {

/// What stands in every object of an answer.
struct AnswerHead {
  Endpoint endpoint;
  std::string id, model;
  int64_t created = 0; ///< seconds since 1970
};

struct Usage {
  int64_t prompt = 0, cached = 0, generated = 0;
};

/// All of a choice.
struct WholeChoice {
  std::string text;
  std::vector<TokenEvent> tokens; ///< if logprobs are wanted
  std::optional<EngineResult> end;
};

/// The answer without streaming.
std::string wholeAnswer(const AnswerHead &head,
                        std::span<const WholeChoice> choices, bool logprobs,
                        const Usage &usage,
                        const tokenizer::Tokenizer &tokenizer);
/// The first event of a chat's choice.
std::string roleChunk(const AnswerHead &head, std::size_t choice);
/// `textBefore`: characters of the choice that earlier chunks have.
std::string deltaChunk(const AnswerHead &head, const Delta &delta,
                       bool logprobs, std::size_t textBefore,
                       const tokenizer::Tokenizer &tokenizer);
std::string usageChunk(const AnswerHead &head, const Usage &usage);
/// "stop" or "length".
std::string_view finishName(FinishReason reason);

} // namespace tessera::serve
