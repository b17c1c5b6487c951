// Turns API requests into requests of the engine, and their tokens into
// responses.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/infer/engine/Engine.h"
#include "runtime/serve/Channels.h"
#include "runtime/serve/Chat.h"
#include "runtime/serve/Choice.h"
#include "runtime/serve/CommonService.h"
#include "runtime/serve/FillIn.h"
#include "runtime/serve/Forms.h"
#include "runtime/serve/StoredAnswers.h"

#include <atomic>
#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tessera::serve {

/// A request of one token, to check the engine.
EngineRequest probeRequest(std::shared_ptr<RequestSink> sink);

class Service final : public CommonService, public AdapterPublisher {
public:
  /// All arguments must outlive the service.
  Service(Engine &engine, const tokenizer::Tokenizer &tokenizer,
          const ChatRenderer &chat, ServiceOptions options);
  /// Drops stored and background responses, and waits for an adapter that is
  /// being loaded, before the server is destroyed.
  void forget() {
    loader = {};
    stores.clear();
  }
  void beforeEnd() override;

  Status publish(const std::string &name, const AdapterFile &adapter) override;
  bool isTaken(const std::string &name) override;
  void withdraw(const std::string &name) override;

private:
  class Generation;
  void post(const HttpRequest &request, Endpoint endpoint,
            const Reply &reply) override;
  /// Sends the response, or begins to generate it; an error is not sent.
  std::optional<ApiError> answer(ApiRequest request, const HttpRequest &http,
                                 const Reply &reply);
  std::optional<ApiError> tokenize(const ApiRequest &request,
                                   const Reply &reply);
  std::optional<ApiError> detokenize(const ApiRequest &request,
                                     const Reply &reply);
  /// Of the input of a message.
  std::optional<ApiError> countTokens(const ApiRequest &request,
                                      const Reply &reply);
  std::optional<ApiError> generate(ApiRequest request, const HttpRequest &http,
                                   AnswerStore &store, const Reply &reply);
  void askStored(const RouteMatch &match, const HttpRequest &request,
                 const Reply &reply) override;
  void changeAdapters(const RouteMatch &match, const HttpRequest &request,
                      const Reply &reply) override;
  void train(const RouteMatch &match, const HttpRequest &request,
             const Reply &reply) override;
  void loadAdapter(const std::string &name, const std::string &path,
                   const Reply &reply);
  std::string engineMetrics() const override;
  /// With channels: the prompt begins the message that the output must be, and
  /// sets the structured output of a call.
  std::optional<ApiError> openChannel(ApiRequest &request) const;
  /// The readers of the outputs; none without channels.
  std::vector<ChannelReader>
  channelsOf(const ApiRequest &request,
             std::span<const EngineRequest> requests) const;
  /// Sets the variables with which templates turn reasoning on or off.
  std::optional<ApiError> setThinking(ApiRequest &request) const;
  /// The same for `reasoning_effort`.
  std::optional<ApiError> setEffort(ApiRequest &request) const;
  /// Checks that the model's template supports the request's tools.
  std::optional<ApiError> checkTools(const ApiRequest &request) const;
  /// The same, and sets the structured output of calls.
  std::optional<ApiError> prepareTools(ApiRequest &request) const;
  /// Those of the tags that are special tokens of the tokenizer.
  std::vector<int32_t>
  specialTokens(std::span<const std::string_view> tags) const;
  /// Special tokens around tool calls.
  std::vector<int32_t> callTags() const;
  /// The tags around reasoning that may begin an output; null: none.
  const ReasoningTags *reasoningOf(const ApiRequest &request) const;
  /// Special tokens that readers of an output look for, in channels or not.
  std::vector<int32_t> shownTokens(const ApiRequest &request,
                                   const ReasoningTags *reasoning,
                                   bool inChannels) const;
  int64_t context() const override { return engine.shape().context; }
  AnswerStore &storeOf(const HttpRequest &request);
  /// Whether the reply would exceed the limit of unread bytes.
  bool isTooMuch(RouteId route, const std::string &id,
                 const HttpRequest &request);
  void sendEvents(KeptAnswer &kept, const StoredQuery &query,
                  const Reply &reply);
  /// Storing is an error if the server stores nothing.
  std::optional<ApiError> checkStore(ApiRequest &request,
                                     const AnswerStore &store) const;
  StatusOr<std::vector<int32_t>> chatPrompt(const ApiRequest &request);
  /// A prompt, and the part that a completion echoes.
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
  /// `echoes`: the echo of each request.
  std::optional<ApiError> makeRequests(const ApiRequest &request,
                                       std::vector<EngineRequest> &to,
                                       std::vector<Echo> &echoes);
  /// Stop strings of the chat template and of the client; adds end tokens to
  /// `tokens`.
  std::vector<std::string> stopsOf(const ApiRequest &request,
                                   std::vector<int32_t> &tokens) const;

  Engine &engine;
  const tokenizer::Tokenizer &tokenizer;
  const ChatRenderer &chat;
  tokenizer::Encoder encoder;
  AnswerForms forms;
  std::deque<AnswerStore> stores; ///< one per key
  bool isLoading = false;         ///< an adapter
  std::atomic<bool> isStopping = false;
  std::jthread loader;
};

} // namespace tessera::serve
