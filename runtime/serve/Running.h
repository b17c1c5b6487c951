// Runs a server from its first token, or embedding, to its end.
#pragma once
#include "runtime/infer/engine/EngineThread.h"
#include "runtime/serve/CommonService.h"
#include "runtime/serve/HttpServer.h"
#include "runtime/serve/Serve.h"

#include <string>

namespace tessera::serve {

/// The "ready" lines that scripts wait for: the time of the start, and the
/// address followed by `what`.
void sayReady(const ServeOptions &options, uint16_t port,
              const std::string &what);

/// Serves until SIGINT or SIGTERM, or until the engine stops; running requests
/// then have so much time to finish. Returns the engine's error. The engine is
/// idle afterwards.
Status runUntilEnd(HttpServer &server, CommonService &service,
                   EngineThread &engine, std::chrono::seconds time);

} // namespace tessera::serve
