#include "runtime/serve/Running.h"

#include <cstdio>
#include <thread>

namespace tessera::serve {
namespace {

/// Ends the server when requests have had time to finish, or the engine has
/// stopped.
class Ending {
public:
  Ending(EngineThread &engine, CommonService &service, HttpServer &server,
         std::chrono::seconds time)
      : engine(engine), service(service), server(server), time(time) {}
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
      service.beforeEnd();
      server.post([this] { server.close(std::chrono::seconds(5)); });
    });
  }
  void watchEngine() {
    if (engine.deathCause())
      return begin();
    server.after(std::chrono::milliseconds(500), [this] { watchEngine(); });
  }

private:
  EngineThread &engine;
  CommonService &service;
  HttpServer &server;
  std::chrono::seconds time;
  std::thread drainer;
};

/// Tells the user why the process still runs after a signal. The server catches
/// one signal; the next has its default action.
void sayDraining(int64_t requests, std::chrono::seconds time) {
  if (requests == 0)
    std::fprintf(stderr, "tessera: ending: no request is unfinished\n");
  else
    std::fprintf(stderr,
                 "tessera: draining: %lld unfinished request%s up to %lld s; a "
                 "second signal ends at once\n",
                 static_cast<long long>(requests),
                 requests == 1 ? " has" : "s have",
                 static_cast<long long>(time.count()));
}

} // namespace

void sayReady(const ServeOptions &options, uint16_t port,
              const std::string &what) {
  std::fprintf(stderr, "tessera: ready in %s\n",
               options.phases.describe().c_str());
  std::fprintf(stderr, "tessera: ready: %s on http://%s:%u, %s\n",
               options.service.models.front().c_str(), options.host.c_str(),
               unsigned(port), what.c_str());
}

Status runUntilEnd(HttpServer &server, CommonService &service,
                   EngineThread &engine, std::chrono::seconds time) {
  service.markReady();
  {
    Ending ending(engine, service, server, time);
    server.post([&] { ending.watchEngine(); });
    server.run([&] {
      sayDraining(engine.unfinished(), time);
      service.markEnding();
      ending.begin();
    });
    // Nothing may be posted from here on.
    engine.drain(EngineClock::now());
  }
  if (auto cause = engine.deathCause())
    return Status::error("the engine has stopped: {}", *cause);
  return Status::success();
}

} // namespace tessera::serve
