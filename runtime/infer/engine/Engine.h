// A scheduler on a thread of its own; all methods are thread-safe.
#pragma once
#include "runtime/infer/engine/EngineThread.h"
#include "runtime/infer/engine/Scheduler.h"

#include <memory>
#include <string>
#include <vector>

namespace tessera {

struct EngineOptions {
  SchedulerOptions scheduler;
  int64_t maxRequests = 256; ///< unfinished, including the running ones
  /// Tokens of unfinished requests, of prompts and still to be generated: the
  /// work ahead of a new request.
  int64_t maxTokens = 1 << 20;
};

/// The outcome of a submission.
struct Submission {
  enum class Outcome : uint8_t {
    accepted,
    invalid, ///< can never run; `message` says why
    full,    ///< try again later
    closed,  ///< draining, or stopped by the error `message`
  };
  Outcome outcome = Outcome::accepted;
  std::string message;
  std::vector<uint64_t> ids; ///< for cancel(), one per request
};

class Engine : public EngineThread {
public:
  /// Starts the thread. The model must outlive the engine, which alone uses it.
  Engine(PagedModel &model, const EngineOptions &options);
  /// Cancels unfinished requests.
  ~Engine() override;

  /// Accepts all of the requests, or none.
  Submission submit(std::vector<EngineRequest> requests);
  /// Calls `task` on the engine's thread between two steps, when the model is
  /// not running; false: the engine has stopped and does not call it.
  bool run(std::function<void()> task);
  /// The request's sink is notified unless it has finished before.
  void cancel(uint64_t id);

  EngineMetrics metrics() const;
  int64_t unfinished() const override;
  /// When the last prefill chunk or token was computed.
  std::optional<EngineClock::time_point> lastComputed() const override;
  const DecoderShape &shape() const { return model.shape(); }

private:
  struct Command {
    uint64_t id;
    std::optional<EngineRequest> request; ///< nothing: cancel
    EngineClock::time_point arrived;
    std::function<void()> task = {}; ///< instead of both
  };
  void loop();
  /// Waits for commands; false: the engine is to stop.
  bool nextCommands(std::vector<Command> &commands);
  void apply(std::vector<Command> &commands);
  void die(const std::string &cause);

  PagedModel &model;
  const EngineOptions options;
  Scheduler scheduler; ///< used by the thread alone

  // The mutex guards the members below.
  std::vector<Command> inbox;
  int64_t queuedTokens = 0;                 ///< of the inbox
  int64_t heldRequests = 0, heldTokens = 0; ///< the scheduler's
  uint64_t nextId = 1;
  EngineMetrics seen;
};

} // namespace tessera
