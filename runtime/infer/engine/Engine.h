// A scheduler on a thread of its own, which any thread may ask.
#pragma once
#include "runtime/infer/engine/EngineThread.h"
#include "runtime/infer/engine/Scheduler.h"

#include <memory>
#include <string>
#include <vector>

namespace tessera {

struct EngineOptions {
  SchedulerOptions scheduler;
  int64_t maxRequests = 256; ///< unfinished ones, those that run included
  /// Tokens of prompts and to be generated of unfinished requests: what there
  /// is to compute before a new request is done.
  int64_t maxTokens = 1 << 20;
};

/// What became of a submission.
struct Submission {
  enum class Outcome : uint8_t {
    accepted,
    invalid, ///< it can never run; `message` says why
    full,    ///< try again later
    closed,  ///< the engine drains, or has died of `message`
  };
  Outcome outcome = Outcome::accepted;
  std::string message;
  std::vector<uint64_t> ids; ///< for cancel(), one a request
};

class Engine : public EngineThread {
public:
  /// Starts the thread. The model must outlive the engine and is its own.
  Engine(PagedModel &model, const EngineOptions &options);
  /// Cancels what is left.
  ~Engine() override;

  /// All of the requests, or none.
  Submission submit(std::vector<EngineRequest> requests);
  /// The request's sink hears of it unless it has finished meanwhile.
  void cancel(uint64_t id);

  EngineMetrics metrics() const;
  int64_t unfinished() const override;
  /// A chunk of a prompt or a token.
  std::optional<EngineClock::time_point> lastComputed() const override;
  const DecoderShape &shape() const { return model.shape(); }

private:
  struct Command {
    uint64_t id;
    std::optional<EngineRequest> request; ///< nothing: cancel
    EngineClock::time_point arrived;
  };
  void loop();
  /// Waits for something to do; false: there is nothing more.
  bool nextCommands(std::vector<Command> &commands);
  void apply(std::vector<Command> &commands);
  void die(const std::string &cause);

  PagedModel &model;
  const EngineOptions options;
  Scheduler scheduler; ///< the thread's

  // The mutex guards what follows.
  std::vector<Command> inbox;
  int64_t queuedTokens = 0;                 ///< of the inbox
  int64_t heldRequests = 0, heldTokens = 0; ///< the scheduler's
  uint64_t nextId = 1;
  EngineMetrics seen;
};

} // namespace tessera
