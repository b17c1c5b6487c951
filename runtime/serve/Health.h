// Whether the engine does what it is for: a model that computed lately.
#pragma once
#include "runtime/infer/engine/Engine.h"
#include "runtime/serve/HttpServer.h"

#include <functional>
#include <memory>
#include <vector>

namespace tessera::serve {

/// A request of one token, to see whether one goes round.
EngineRequest probeRequest(std::shared_ptr<RequestSink> sink);

struct HealthTimes {
  std::chrono::milliseconds recent{5000};    ///< that is still now
  std::chrono::milliseconds patience{10000}; ///< that whoever asks waits
};

/// For the server's thread. However many ask at once, at most one probe is in
/// the engine, and none while requests are: their tokens say the same.
class Health {
public:
  Health(Engine &engine, HealthTimes times) : engine(engine), times(times) {}
  /// Calls `tell` with an empty text if the model computed lately, or does so
  /// while one can wait; else with what is wrong.
  void ask(HttpServer &server, std::function<void(const std::string &)> tell);
  /// Tells all who wait kEnding: no token is computed for them any more.
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

  Engine &engine;
  const HealthTimes times;
  std::vector<Waiting> waiting;
  std::shared_ptr<RequestSink> probing; ///< the one that is in the engine
};

} // namespace tessera::serve
