// How an endpoint answers: as one JSON object, or as a stream of events.
#pragma once
#include "runtime/serve/Api.h"
#include "runtime/serve/Choice.h"
#include "runtime/serve/HttpServer.h"
#include "runtime/serve/Logprobs.h"

#include <memory>

namespace tessera::serve {

/// What stands in every object of an answer.
struct AnswerHead {
  std::string id, model;
  int64_t created = 0; ///< seconds since 1970
};

struct Usage {
  int64_t prompt = 0, cached = 0, generated = 0;
};

/// All of a choice so far.
struct WholeChoice {
  std::string text;
  std::vector<ToolCall> calls;
  LogprobText logprobs; ///< if they are wanted and nothing is streamed
  std::optional<EngineResult> end;
};

/// Of one request.
class Answer {
public:
  virtual ~Answer() = default;
  /// The body without streaming.
  virtual std::string whole(std::span<const WholeChoice> choices,
                            const Usage &usage) = 0;
  /// The first events, before any of delta().
  virtual void begin(HttpReply &reply) = 0;
  virtual void delta(HttpReply &reply, const Delta &delta) = 0;
  /// The last events, and the end of the reply.
  virtual void end(HttpReply &reply, std::span<const WholeChoice> choices,
                   const Usage &usage) = 0;
  /// The same for a stream that an error ends.
  virtual void fail(HttpReply &reply, std::span<const WholeChoice> choices,
                    const ApiError &error) = 0;
};

/// The request and the tokenizer must outlive it.
std::unique_ptr<Answer> makeAnswer(const ApiRequest &request, AnswerHead head,
                                   const tokenizer::Tokenizer &tokenizer);
/// Its part for POST /v1/responses.
std::unique_ptr<Answer> makeResponse(const ApiRequest &request,
                                     AnswerHead head);

} // namespace tessera::serve
