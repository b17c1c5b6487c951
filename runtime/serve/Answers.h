// Writes the response of an endpoint: as one JSON object, or as a stream of
// events.
#pragma once
#include "runtime/serve/Api.h"
#include "runtime/serve/Choice.h"
#include "runtime/serve/HttpServer.h"
#include "runtime/serve/Logprobs.h"
#include "runtime/serve/Responses.h"

#include <memory>

namespace tessera::serve {

/// The members of every object of a response.
struct AnswerHead {
  std::string id, model;
  int64_t created = 0;      ///< seconds since 1970
  int64_t promptTokens = 0; ///< of the first prompt
};

/// A choice so far.
struct WholeChoice {
  std::string text;
  std::string reasoning; ///< before the text
  std::vector<ToolCall> calls;
  LogprobText logprobs; ///< if requested and not streamed
  std::vector<int32_t> prompt = {}, tokens = {}; ///< if requested
  std::optional<EngineResult> end;
  std::string stopped = {}; ///< the stop string that ended it
};

/// The response to one request.
class Answer {
public:
  virtual ~Answer() = default;
  /// The body without streaming, also for a response that was streamed.
  virtual std::string whole(std::span<const WholeChoice> choices,
                            const Usage &usage) = 0;
  /// Replaces begin() and delta() without streaming.
  virtual void note(const Delta &) {}
  /// The record of /v1/responses; null for other endpoints.
  virtual std::shared_ptr<ResponseRecord> record() const { return nullptr; }
  /// Sends the first events, before any delta().
  virtual void begin(HttpReply &reply) = 0;
  virtual void delta(HttpReply &reply, const Delta &delta) = 0;
  /// Sends the last events, and ends the reply.
  virtual void end(HttpReply &reply, std::span<const WholeChoice> choices,
                   const Usage &usage) = 0;
  /// The same for a stream that ends with an error.
  virtual void fail(HttpReply &reply, std::span<const WholeChoice> choices,
                    const ApiError &error) = 0;
};

/// JSON of an object of strings.
std::string metadataJson(const Metadata &metadata);
/// Adds a member, whose value is JSON, to an object.
std::string withMember(std::string object, std::string_view name,
                       std::string_view value);

/// The request and the tokenizer must outlive it.
std::unique_ptr<Answer> makeAnswer(const ApiRequest &request, AnswerHead head,
                                   const tokenizer::Tokenizer &tokenizer);
/// makeAnswer() for POST /v1/responses.
std::unique_ptr<Answer> makeResponse(const ApiRequest &request,
                                     AnswerHead head);
/// makeAnswer() for POST /v1/messages.
std::unique_ptr<Answer> makeMessage(const ApiRequest &request, AnswerHead head);

} // namespace tessera::serve
