// The routes: what is asked over HTTP becomes requests of the engine, and
// their tokens answers.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/infer/engine/Engine.h"
#include "runtime/serve/Chat.h"
#include "runtime/serve/Choice.h"
#include "runtime/serve/CommonService.h"
#include "runtime/serve/FillIn.h"
#include "runtime/serve/Forms.h"
#include "runtime/serve/StoredAnswers.h"

#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace tessera::serve {

/// A request of one token, to see whether one goes round.
EngineRequest probeRequest(std::shared_ptr<RequestSink> sink);

class Service final : public CommonService {
public:
  /// All of them must outlive the service.
  Service(Engine &engine, const tokenizer::Tokenizer &tokenizer,
          const ChatRenderer &chat, ServiceOptions options);
  /// Forgets what is stored and what runs in the background, before the server
  /// goes.
  void forget() { stores.clear(); }

private:
  class Generation;
  void post(const HttpRequest &request, Endpoint endpoint,
            const Reply &reply) override;
  void askStored(const RouteMatch &match, const HttpRequest &request,
                 const Reply &reply) override;
  std::string engineMetrics() const override;
  /// Whether the model's template has the request's tools; the form that calls
  /// must have.
  std::optional<ApiError> prepareTools(ApiRequest &request) const;
  /// Special tokens that stand around calls.
  std::vector<int32_t> callTags() const;
  int64_t context() const override { return engine.shape().context; }
  AnswerStore &storeOf(const HttpRequest &request);
  /// What adds to an answer that is not read, unless it makes room.
  bool isTooMuch(RouteId route, const std::string &id,
                 const HttpRequest &request);
  void sendEvents(KeptAnswer &kept, const StoredQuery &query,
                  const Reply &reply);
  /// What the server does not keep cannot be stored.
  std::optional<ApiError> checkStore(ApiRequest &request,
                                     const AnswerStore &store) const;
  StatusOr<std::vector<int32_t>> chatPrompt(const ApiRequest &request);
  /// A prompt's tokens, and what of them a completion may begin with.
  struct Prompt {
    std::vector<int32_t> tokens;
    Echo echo;
  };
  std::optional<ApiError> makePrompts(const ApiRequest &request,
                                      std::vector<Prompt> &to);
  std::optional<ApiError> makeTokens(const PromptInput &prompt,
                                     const ApiRequest &request, Prompt &to);
  std::optional<Echo> echoOf(const std::string &text,
                             std::span<const int32_t> tokens,
                             const FillInTokens *fill);
  /// `echoes`: of each request what it begins with.
  std::optional<ApiError> makeRequests(const ApiRequest &request,
                                       std::vector<EngineRequest> &to,
                                       std::vector<Echo> &echoes);
  /// Stops of the chat's template and of the client, and tokens that end.
  std::vector<std::string> stopsOf(const ApiRequest &request,
                                   std::vector<int32_t> &tokens) const;

  Engine &engine;
  const tokenizer::Tokenizer &tokenizer;
  const ChatRenderer &chat;
  tokenizer::Encoder encoder;
  AnswerForms forms;
  std::deque<AnswerStore> stores; ///< of each key
};

} // namespace tessera::serve
