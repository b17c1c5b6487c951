// A server from its first token, or vector, to its end.
#pragma once
#include "runtime/infer/engine/EngineThread.h"
#include "runtime/serve/CommonService.h"
#include "runtime/serve/HttpServer.h"
#include "runtime/serve/Serve.h"

#include <string>

namespace tessera::serve {

/// The lines that scripts wait for: where the time went, and the address with
/// `what` there is behind it.
void sayReady(const ServeOptions &options, uint16_t port,
              const std::string &what);

/// Answers until SIGINT or SIGTERM, or until the engine dies; what runs then
/// has so much time to finish. An error is what the engine died of. Nothing of
/// the engine is left to do when this returns.
Status runUntilEnd(HttpServer &server, CommonService &service,
                   EngineThread &engine, std::chrono::seconds time);

} // namespace tessera::serve
