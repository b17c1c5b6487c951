// How an endpoint answers: as one JSON object, or as a stream of events.
#pragma once
#include "runtime/serve/Api.h"
#include "runtime/serve/Choice.h"
#include "runtime/serve/HttpServer.h"
#include "runtime/serve/Logprobs.h"
#include "runtime/serve/Responses.h"

#include <memory>

namespace tessera::serve {

/// What stands in every object of an answer.
struct AnswerHead {
  std::string id, model;
  int64_t created = 0; ///< seconds since 1970
};

/// All of a choice so far.
struct WholeChoice {
  std::string text;
  std::vector<ToolCall> calls;
  LogprobText logprobs; ///< if they are wanted, and told as a whole
  std::optional<EngineResult> end;
};

/// Of one request.
class Answer {
public:
  virtual ~Answer() = default;
  /// The body without streaming, also of an answer that was streamed.
  virtual std::string whole(std::span<const WholeChoice> choices,
                            const Usage &usage) = 0;
  /// In place of begin() and delta() where nothing is streamed.
  virtual void note(const Delta &) {}
  /// What a response becomes; null of other endpoints.
  virtual std::shared_ptr<ResponseRecord> record() const { return nullptr; }
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

/// JSON of an object with texts.
std::string metadataJson(const Metadata &metadata);
/// `object` with one member more, which is JSON already.
std::string withMember(std::string object, std::string_view name,
                       std::string_view value);

/// The request and the tokenizer must outlive it.
std::unique_ptr<Answer> makeAnswer(const ApiRequest &request, AnswerHead head,
                                   const tokenizer::Tokenizer &tokenizer);
/// Its part for POST /v1/responses.
std::unique_ptr<Answer> makeResponse(const ApiRequest &request,
                                     AnswerHead head);

} // namespace tessera::serve
