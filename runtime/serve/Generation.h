// One request in progress: collects its choices and writes the response.
#pragma once
#include "runtime/serve/Answers.h"
#include "runtime/serve/Followers.h"
#include "runtime/serve/Service.h"
#include "runtime/serve/TaggedCalls.h"

namespace tessera::serve {

/// Used in the server's thread. Its choices and its reply hold it; in the
/// background the store does too.
class Service::Generation final
    : public RunningResponse,
      public std::enable_shared_from_this<Generation> {
public:
  Generation(Service &service, AnswerStore &store, ApiRequest request,
             AnswerHead head, const HttpRequest &http,
             std::shared_ptr<HttpReply> reply, std::size_t choices)
      : service(service), store(store), request(std::move(request)),
        id(head.id), model(head.model), errorForm(errorFormOf(http.path)),
        answer(makeAnswer(this->request, std::move(head), service.tokenizer)),
        reply(std::move(reply)), choices(choices),
        trace(parseTraceParent(http.traceParent)) {
    const ToolFormat *format = service.chat.toolFormat();
    for (std::size_t i = 0; format && this->request.mayCall() && i < choices;
         ++i)
      readers.push_back(makeCallReader(*format, this->request.tools,
                                       this->request.usesFunctions));
    // The answer has copies of what it needs.
    this->request.tools = {};
    this->request.form.reset();
    this->request.instructions.reset();
  }
  /// Called when the engine has accepted them: their numbers, for cancelling.
  void start(std::vector<uint64_t> ids);
  /// For the response of a choice; before start().
  void keepPrompt(std::size_t choice, std::vector<int32_t> prompt) {
    choices[choice].prompt = std::move(prompt);
  }
  /// The choices begin with reasoning in these tags, which is separated from
  /// their content; before start().
  void readReasoning(const ReasoningTags &tags,
                     std::span<const EngineRequest> requests);
  /// The choices are messages in channels; before start().
  void readChannels(std::vector<ChannelReader> given) {
    undecided.resize(given.size());
    channels = std::move(given);
  }
  void take(Delta delta);
  void cancel() override;
  void follow(std::shared_ptr<HttpReply> to, int64_t after,
              bool obfuscate) override;

private:
  void startBackground();
  void beginStream();
  void keep(std::string chat);
  void settle();
  void count(std::size_t choice, const EngineResult &result);
  void findReasoning(Delta &delta);
  void findCalls(Delta &delta);
  void findChannels(Delta &delta);
  void finish();
  void fail(const EngineResult &result);
  void cancelAll();
  /// Sends nothing more; the log line waits for the counts of cancelled
  /// requests.
  void close(int status);
  void logOnceOver() const;
  RequestTrace traced() const;

  Service &service;
  AnswerStore &store;
  ApiRequest request;
  std::string id, model;
  ErrorForm errorForm;
  std::unique_ptr<Answer> answer;
  std::shared_ptr<HttpReply> reply; ///< in the background: its followers
  std::shared_ptr<Followers> followers;
  std::vector<WholeChoice> choices;
  /// Of choices that may call tools.
  std::vector<std::unique_ptr<CallReader>> readers;
  std::vector<ChannelReader> channels; ///< of each choice, or none
  /// Tokens of each that may be reasoning, until that is known.
  std::vector<int64_t> undecided;
  std::vector<ReasoningReader> reasoning; ///< of choices that may begin so
  std::vector<uint64_t> ids;
  std::size_t ended = 0;
  bool begun = false, closed = false;
  int status = 200;                  ///< for the log, once closed
  std::string failure;               ///< with another status
  std::optional<TraceContext> trace; ///< that the client names
  Usage usage;
  int64_t read = 0; ///< tokens of the prompts, also of cancelled requests
  EngineClock::time_point arrived = EngineClock::now();
};

} // namespace tessera::serve
