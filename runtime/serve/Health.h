// Health of the engine: whether the model has computed something lately.
#pragma once
#include "runtime/infer/engine/EngineThread.h"
#include "runtime/serve/HttpServer.h"

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

namespace tessera::serve {

/// Sends one token through an engine, with a `deadline`; returns whether it was
/// accepted. `done` is called at its end, on any thread.
using HealthProbe = std::function<bool(EngineClock::time_point deadline,
                                       std::function<void()> done)>;

struct HealthTimes {
  std::chrono::milliseconds recent{5000};    ///< maximal age of a computation
  std::chrono::milliseconds patience{10000}; ///< how long a caller waits
};

/// For the server's thread. At most one probe is in the engine, and none while
/// requests run, since their progress shows the same.
class Health {
public:
  Health(const EngineThread &engine, HealthProbe send, HealthTimes times)
      : engine(engine), send(std::move(send)), times(times) {}
  /// Calls `tell` with an empty string if the model computed something lately
  /// or does so before `patience` ends; else with an error.
  void ask(HttpServer &server, std::function<void(const std::string &)> tell);
  /// Tells all waiting callers kEnding.
  void end();
  static constexpr std::string_view kEnding = "the server is shutting down";

private:
  struct Waiting {
    EngineClock::time_point since;
    std::function<void(const std::string &)> tell;
  };
  bool worksNow() const;
  void probe();
  void look(HttpServer &server);

  const EngineThread &engine;
  const HealthProbe send;
  const HealthTimes times;
  std::vector<Waiting> waiting;
  std::shared_ptr<std::atomic<bool>> done; ///< of the newest probe
};

} // namespace tessera::serve
