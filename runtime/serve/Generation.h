// One call of the API on its way: collects what its choices become and answers.
#pragma once
#include "runtime/serve/Answers.h"
#include "runtime/serve/Service.h"

namespace tessera::serve {

/// For the server's thread. Held by what its choices post, and by the reply; in
/// the background also by the store.
class Service::Generation final
    : public RunningResponse,
      public std::enable_shared_from_this<Generation> {
public:
  Generation(Service &service, AnswerStore &store, ApiRequest request,
             AnswerHead head, std::shared_ptr<HttpReply> reply,
             std::size_t choices)
      : service(service), store(store), request(std::move(request)),
        id(head.id),
        answer(makeAnswer(this->request, std::move(head), service.tokenizer)),
        reply(std::move(reply)), choices(choices) {
    if (this->request.mayCall()) {
      std::vector<std::string> names;
      names.reserve(this->request.tools.size());
      for (const Tool &tool : this->request.tools)
        names.push_back(tool.name);
      readers.assign(choices, ToolCallReader(*service.chat.toolFormat(), names,
                                             this->request.usesFunctions));
    }
    // What the answer needs of them stands in it.
    this->request.tools = {};
    this->request.form.reset();
    this->request.instructions.reset();
  }
  /// The engine has them: their numbers, for cancelling.
  void start(std::vector<uint64_t> ids);
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
  void findCalls(Delta &delta);
  void finish();
  void fail(const EngineResult &result);
  void cancelAll();
  /// Nothing more is answered; the line of the log waits for the counts of
  /// what was cancelled.
  void close(int status);
  void logOnceOver() const;

  Service &service;
  AnswerStore &store;
  ApiRequest request;
  std::string id;
  std::unique_ptr<Answer> answer;
  std::shared_ptr<HttpReply> reply; ///< in the background the followers
  std::shared_ptr<Followers> followers;
  std::vector<WholeChoice> choices;
  std::vector<ToolCallReader> readers; ///< of choices that may call tools
  std::vector<uint64_t> ids;
  std::size_t ended = 0;
  bool begun = false, closed = false;
  int status = 200; ///< of the log, once it is closed
  Usage usage;
  int64_t read = 0; ///< of the prompts, also where the request was cut off
  EngineClock::time_point arrived = EngineClock::now();
};

} // namespace tessera::serve
