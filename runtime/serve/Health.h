// Whether the engine does what it is for: a model that computed lately.
#pragma once
#include "runtime/infer/engine/EngineThread.h"
#include "runtime/serve/HttpServer.h"

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

namespace tessera::serve {

/// Sends one token through an engine, which gives up at `deadline`; whether it
/// took it. `done` is called when that ended, on any thread.
using HealthProbe = std::function<bool(EngineClock::time_point deadline,
                                       std::function<void()> done)>;

struct HealthTimes {
  std::chrono::milliseconds recent{5000};    ///< that is still now
  std::chrono::milliseconds patience{10000}; ///< that whoever asks waits
};

/// For the server's thread. However many ask at once, at most one probe is in
/// the engine, and none while requests are: what they get says the same.
class Health {
public:
  Health(const EngineThread &engine, HealthProbe send, HealthTimes times)
      : engine(engine), send(std::move(send)), times(times) {}
  /// Calls `tell` with an empty text if the model computed lately, or does so
  /// while one can wait; else with what is wrong.
  void ask(HttpServer &server, std::function<void(const std::string &)> tell);
  /// Tells all who wait kEnding: nothing is computed for them any more.
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
