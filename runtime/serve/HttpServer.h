// HTTP/1.1 with limits everywhere: a peer may be slow, wrong or hostile and
// costs no more than its connection. It knows nothing of what is served.
#pragma once
#include "runtime/serve/HttpAddress.h"
#include "runtime/support/Status.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tessera::serve {

struct HttpLimits {
  std::size_t headerBytes = 16 << 10; ///< of the request line and all headers
  std::size_t bodyBytes = 4 << 20;
  /// With more the one that has waited longest for a request is closed; where
  /// all have one, the new one is answered 503.
  std::size_t connections = 512;
  std::size_t unsentBytes = 1 << 20; ///< of a stream whose reader is too slow
  /// Of all connections, before answers that can be asked for again are
  /// refused; each group of them (HttpHandler) has an equal share.
  std::size_t unreadBytes = std::size_t(256) << 20;
  std::chrono::milliseconds requestTime{30000}; ///< to send one
  std::chrono::milliseconds idleTime{60000};    ///< between two requests
  std::chrono::milliseconds writeTime{30000};   ///< without progress
  std::chrono::milliseconds pingTime{15000};    ///< of silence, then a comment
};

struct HttpRequest {
  std::string method, path; ///< without the query
  std::string query = {};   ///< behind its '?', still encoded
  std::string authorization;
  bool isForeign = false; ///< a browser asks for a page of another site
  std::string body;
};

struct ServerEvent {
  std::string name; ///< none if empty
  std::string data; ///< one line
};

/// The answer to one request; either send(), or begin(), event()... and end().
/// For the server's thread. Once the peer has gone nothing happens any more.
class HttpReply {
public:
  virtual ~HttpReply() = default;
  /// `headers`: whole lines, "Name: value\r\n".
  virtual void send(int status, std::string_view type, std::string body,
                    std::string_view headers = {}) = 0;
  /// Server-sent events, the first of which may be of any size.
  virtual void begin(std::span<const ServerEvent> first) = 0;
  void begin() { begin({}); }
  virtual void event(std::string_view data, std::string_view name = {}) = 0;
  /// With the last events, which may be of any size.
  virtual void end(std::span<const ServerEvent> last) = 0;
  /// Called once if the peer goes, or is given up, before the answer is whole.
  std::function<void()> onGone;
};

class HttpHandler {
public:
  virtual ~HttpHandler() = default;
  /// Before the body is read: empty to go on, or the JSON body of a 401.
  virtual std::string refuse(const HttpRequest &head) = 0;
  /// A request that was not refused: with whose its unread answer is counted.
  virtual std::size_t groupOf(const HttpRequest &) const { return 0; }
  virtual void handle(HttpRequest request,
                      std::shared_ptr<HttpReply> reply) = 0;
  /// The JSON body for an error of HTTP itself.
  virtual std::string describe(int status, std::string_view message) = 0;
};

/// One thread runs it; it calls the handler.
class HttpServer {
public:
  /// At an address that was taken for it. The handler must outlive the server.
  static StatusOr<std::unique_ptr<HttpServer>>
  listen(HttpAddress &address, const HttpLimits &limits, HttpHandler &handler);
  virtual ~HttpServer() = default;
  /// What was bound, also if 0 was asked for.
  virtual uint16_t port() const = 0;
  /// Until closed. `onSignal` hears of the first SIGINT or SIGTERM; the second
  /// ends the process.
  virtual void run(std::function<void()> onSignal) = 0;
  /// From any thread: runs `task` in run()'s.
  virtual void post(std::function<void()> task) = 0;
  /// In run()'s thread: `task` after that time.
  virtual void after(std::chrono::milliseconds time,
                     std::function<void()> task) = 0;
  /// After how long a stream that says nothing has a comment.
  virtual std::chrono::milliseconds pingTime() const = 0;
  /// In run()'s thread: whether readers of that group, of so many, leave too
  /// much unread.
  virtual bool isPiledUp(std::size_t group, std::size_t groups) const = 0;
  /// In run()'s thread: no new connections, none is kept after its answer.
  virtual void refuseNew() = 0;
  /// In run()'s thread: run() returns when the last answer is written, or after
  /// `grace`.
  virtual void close(std::chrono::milliseconds grace) = 0;
};

} // namespace tessera::serve
