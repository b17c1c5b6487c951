// A model behind an address until a signal: engine, service and server put
// together.
#pragma once
#include "runtime/serve/Service.h"
#include "runtime/support/StartPhases.h"

#include <functional>
#include <memory>
#include <stop_token>

namespace tessera::serve {

struct ServeOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000; ///< 0: one that is free
  /// Both of these, which takeAddress() takes before anything that takes time.
  std::shared_ptr<HttpAddress> address;
  Status takeAddress();
  EngineOptions engine;
  ServiceOptions service;
  HttpLimits http;
  int64_t requestSeconds = 600; ///< until a request is given up
  int64_t drainSeconds = 30;    ///< that requests have to finish at the end
  uint64_t cacheBytes = 0;      ///< of keys and values; the line "ready" has it
  StartPhases phases;           ///< up to here; the line "ready in" tells them
  /// What has time until the server is ready, then on a thread of its own; must
  /// return soon after it is asked to stop. May be empty.
  std::function<void(std::stop_token)> whenReady;
};

/// Prints "ready" with the address, which must be taken, to stderr when a token
/// went round; returns after SIGINT or SIGTERM and the last answer, or with the
/// error that ended the engine. The arguments must outlive the call.
Status serve(PagedModel &model, const tokenizer::Tokenizer &tokenizer,
             const ChatRenderer &chat, ServeOptions options);

} // namespace tessera::serve
