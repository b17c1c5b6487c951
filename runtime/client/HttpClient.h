// A streaming HTTP client: one request and one connection; server-sent events
// are delivered as they arrive.
#pragma once
#include "runtime/support/Status.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tessera::client {

struct ServerAddress {
  std::string host, port;
  std::string path;          ///< before "/v1", without a slash at its end
  std::string authorization; ///< of every request; may be empty
};

/// Of "http://HOST[:PORT][/PATH]". TLS is a proxy's job.
StatusOr<ServerAddress> parseServerUrl(std::string_view url);

struct ServerAnswer {
  int status = 0;
  std::string body; ///< unless the response is a stream
};

/// Sends one request and reads its response. Calls `event` with the data of
/// each event of a stream as it arrives. Exceeding `timeout` is an error, and
/// so is that `stop`, which is asked now and then, becomes true.
StatusOr<ServerAnswer>
askServer(const ServerAddress &server, std::string_view method,
          std::string_view path, std::string_view body,
          std::chrono::milliseconds timeout,
          const std::function<void(std::string_view)> &event,
          const std::function<bool()> &stop = nullptr);

/// The first model that the server lists: what a request without a choice of
/// its own names.
StatusOr<std::string> firstModel(const ServerAddress &server);

} // namespace tessera::client
