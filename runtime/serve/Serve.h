// Serves a model at an address until a signal: connects engine, service and
// server.
#pragma once
#include "runtime/serve/Service.h"
#include "runtime/support/StartPhases.h"

#include <functional>
#include <memory>
#include <stop_token>

namespace tessera::serve {

struct ServeOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000; ///< 0: any free one
  /// Both of these, which takeAddress() takes before anything that takes time.
  std::shared_ptr<HttpAddress> address;
  Status takeAddress();
  std::shared_ptr<TraceExporter> openTraces() const;
  EngineOptions engine;
  ServiceOptions service;
  /// The OpenTelemetry collector of traces; nothing: none are made.
  std::optional<client::ServerAddress> traces;
  HttpLimits http;
  int64_t requestSeconds = 600; ///< after which a request is cancelled
  int64_t drainSeconds = 30;    ///< for running requests at the end
  uint64_t cacheBytes = 0;      ///< of the KV cache, for the line "ready"
  StartPhases phases;           ///< so far, for the line "ready in"
  /// Work that can wait until the server is ready; it then runs on a thread of
  /// its own and must return soon after it is asked to stop. May be empty.
  std::function<void(std::stop_token)> whenReady;
};

/// When a first token was generated, prints "ready" with the address, which
/// must be reserved, to stderr. Returns after SIGINT or SIGTERM and the last
/// response, or with the error that stopped the engine. The arguments must
/// outlive the call.
Status serve(PagedModel &model, const tokenizer::Tokenizer &tokenizer,
             const ChatRenderer &chat, ServeOptions options);

} // namespace tessera::serve
