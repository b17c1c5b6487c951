// How a server comes to its end.
#pragma once
#include "runtime/infer/engine/Request.h"
#include "runtime/serve/HttpServer.h"

#include <thread>

namespace tessera::serve {

/// Ends the server when requests have had their time, or the engine has died.
/// Of an engine it knows drain() and deathCause().
template <typename AnyEngine> class Ending {
public:
  Ending(AnyEngine &engine, HttpServer &server, std::chrono::seconds time)
      : engine(engine), server(server), time(time) {}
  ~Ending() {
    if (drainer.joinable())
      drainer.join();
  }
  /// In the server's thread, as all that follows.
  void begin() {
    if (drainer.joinable())
      return;
    server.refuseNew();
    drainer = std::thread([this] {
      engine.drain(EngineClock::now() + time);
      server.post([this] { server.close(std::chrono::seconds(5)); });
    });
  }
  void watchEngine() {
    if (engine.deathCause())
      return begin();
    server.after(std::chrono::milliseconds(500), [this] { watchEngine(); });
  }

private:
  AnyEngine &engine;
  HttpServer &server;
  std::chrono::seconds time;
  std::thread drainer;
};

} // namespace tessera::serve
