// HTTP/1.1 with limits everywhere: a slow, wrong or hostile peer costs no more
// than its connection. Independent of the API.
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
  /// Above this the longest idle connection is closed; if none is idle, the new
  /// one gets a 503.
  std::size_t connections = 512;
  std::size_t unsentBytes = 1 << 20; ///< of a stream before it is closed
  /// Of all connections; beyond it, stored answers are not sent. Each group
  /// (HttpHandler) may use an equal part.
  std::size_t unreadBytes = std::size_t(256) << 20;
  std::chrono::milliseconds requestTime{30000}; ///< to receive a request
  std::chrono::milliseconds idleTime{60000};    ///< between two requests
  std::chrono::milliseconds writeTime{30000};   ///< without progress
  std::chrono::milliseconds pingTime{15000};    ///< of silence, then a comment
};

struct HttpRequest {
  std::string method, path; ///< without the query
  std::string query = {};   ///< after its '?', still encoded
  std::string authorization;
  std::string apiKey = {};      ///< X-Api-Key, another way to give a key
  std::string ifNoneMatch = {}; ///< ETags of what the client has
  bool isForeign = false; ///< sent by a browser for a page of another site
  std::string traceParent = {}; ///< the client's trace, still unread
  std::string body;
};

struct ServerEvent {
  std::string name; ///< empty: none
  std::string data; ///< one line
};

/// The reply to one request: either send(), or begin(), event()... and end().
/// For the server's thread. After the peer has disconnected, calls do nothing.
class HttpReply {
public:
  virtual ~HttpReply() = default;
  /// `headers`: whole lines, "Name: value\r\n".
  virtual void send(int status, std::string_view type, std::string body,
                    std::string_view headers = {}) = 0;
  /// Starts server-sent events; the first may be of any size.
  virtual void begin(std::span<const ServerEvent> first) = 0;
  void begin() { begin({}); }
  virtual void event(std::string_view data, std::string_view name = {}) = 0;
  /// Ends them; the last events may be of any size.
  virtual void end(std::span<const ServerEvent> last) = 0;
  /// Called once if the peer disconnects or is dropped before the end.
  std::function<void()> onGone;
};

class HttpHandler {
public:
  virtual ~HttpHandler() = default;
  /// Called before the body is read: empty to continue, or the JSON body of a
  /// 401.
  virtual std::string refuse(const HttpRequest &head) = 0;
  /// The group of an accepted request, in which its unsent bytes count.
  virtual std::size_t groupOf(const HttpRequest &) const { return 0; }
  virtual void handle(HttpRequest request,
                      std::shared_ptr<HttpReply> reply) = 0;
  /// The JSON body for an error of HTTP itself; `path` is empty if it is not
  /// known.
  virtual std::string describe(int status, std::string_view message,
                               std::string_view path) = 0;
};

/// Runs in one thread and calls the handler.
class HttpServer {
public:
  /// Serves at a reserved address. The handler must outlive the server.
  static StatusOr<std::unique_ptr<HttpServer>>
  listen(HttpAddress &address, const HttpLimits &limits, HttpHandler &handler);
  virtual ~HttpServer() = default;
  /// The bound port, also if 0 was requested.
  virtual uint16_t port() const = 0;
  /// Runs until closed. `onSignal` is called for the first SIGINT or SIGTERM;
  /// the second ends the process.
  virtual void run(std::function<void()> onSignal) = 0;
  /// From any thread: runs `task` in run()'s thread.
  virtual void post(std::function<void()> task) = 0;
  /// In run()'s thread: runs `task` after that time.
  virtual void after(std::chrono::milliseconds time,
                     std::function<void()> task) = 0;
  /// After how much silence a stream gets a comment.
  virtual std::chrono::milliseconds pingTime() const = 0;
  /// In run()'s thread: whether that group, one of so many, has too many unsent
  /// bytes.
  virtual bool isPiledUp(std::size_t group, std::size_t groups) const = 0;
  /// In run()'s thread: accepts no connections, and closes each after its
  /// response.
  virtual void refuseNew() = 0;
  /// In run()'s thread: run() returns when the last response is written, or
  /// after `grace`.
  virtual void close(std::chrono::milliseconds grace) = 0;
};

} // namespace tessera::serve
