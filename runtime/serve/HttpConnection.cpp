#include "runtime/serve/HttpConnection.h"

#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>

#include <algorithm>

#include <sys/socket.h>

namespace tessera::serve {

namespace http = boost::beast::http;
namespace net = boost::asio;

/// Boost 1.74 has its own string_view.
static std::string_view viewOf(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

/// Keeps its connection alive until the reply ends.
class HttpConnection::Reply final : public HttpReply,
                                    public std::enable_shared_from_this<Reply> {
public:
  explicit Reply(std::shared_ptr<HttpConnection> to)
      : connection(std::move(to)), ping(connection->stream.get_executor()),
        isHead(connection->head.method == "HEAD") {}

  void send(int status, std::string_view type, std::string body,
            std::string_view headers) override {
    std::string text = start(status, type, headers);
    // That of a 304 would be the length of the body that the client has.
    text += status == 304
                ? "\r\n"
                : fmt::format("Content-Length: {}\r\n\r\n", body.size());
    if (!isHead)
      text += body;
    finish(std::move(text));
  }

  void begin(std::span<const ServerEvent> first) override {
    bool chunked = connection && connection->version >= 11;
    if (connection && !chunked)
      connection->keepAlive = false; // the body ends with the connection
    isChunked = chunked;
    std::string text =
        start(200, "text/event-stream", "Cache-Control: no-store\r\n") +
        (chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    if (isHead)
      return finish(std::move(text)); // without events
    for (const ServerEvent &each : first)
      text += framed(eventText(each.data, each.name));
    if (connection)
      connection->write(std::move(text), /*isLast=*/false, /*isFree=*/true);
    waitForPing();
  }
  void event(std::string_view data, std::string_view name) override {
    put(framed(eventText(data, name)));
  }
  void end(std::span<const ServerEvent> last) override {
    std::string text;
    for (const ServerEvent &each : last)
      text += framed(eventText(each.data, each.name));
    finish(text + (isChunked ? "0\r\n\r\n" : ""));
  }

  /// Called when the peer has disconnected.
  void lose() {
    ping.cancel();
    connection.reset();
    if (auto tell = std::exchange(onGone, nullptr))
      tell();
  }

private:
  std::string start(int status, std::string_view type,
                    std::string_view headers) {
    if (connection && connection->shared.closing)
      connection->keepAlive = false;
    return fmt::format(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nConnection: {}\r\n{}", status,
        viewOf(http::obsolete_reason(http::status(status))), type,
        connection && connection->keepAlive ? "keep-alive" : "close", headers);
  }
  static std::string eventText(std::string_view data, std::string_view name) {
    std::string begin =
        name.empty() ? std::string() : fmt::format("event: {}\n", name);
    return fmt::format("{}data: {}\n\n", begin, data);
  }
  std::string framed(const std::string &text) const {
    return isChunked ? fmt::format("{:x}\r\n{}\r\n", text.size(), text) : text;
  }
  void put(std::string text) {
    wasQuiet = false;
    if (connection)
      connection->write(std::move(text), /*isLast=*/false);
  }
  void finish(std::string text) {
    ping.cancel();
    onGone = nullptr;
    if (auto to = std::exchange(connection, nullptr))
      to->write(std::move(text), /*isLast=*/true);
  }
  void waitForPing() {
    if (!connection)
      return;
    ping.expires_after(connection->shared.limits.pingTime);
    wasQuiet = true;
    ping.async_wait([weak = weak_from_this()](Error error) {
      auto self = weak.lock();
      if (error || !self)
        return;
      if (self->wasQuiet)
        self->put(self->framed(": ping\n\n"));
      self->waitForPing();
    });
  }

  std::shared_ptr<HttpConnection> connection;
  net::steady_timer ping;
  const bool isHead; ///< the body is omitted
  bool isChunked = false, wasQuiet = true;
};

HttpConnection::HttpConnection(net::ip::tcp::socket socket, HttpShared &shared)
    : stream(std::move(socket)), buffer(shared.limits.headerBytes + (64 << 10)),
      shared(shared) {
  ++shared.open;
}

HttpConnection::~HttpConnection() {
  --shared.open;
  shared.unsent[group] -= unsentBytes;
  if (shared.onClosed)
    shared.onClosed();
}

//===--- requests ---------------------------------------------------------===//

void HttpConnection::readHead() {
  answering = lastQueued = false;
  head = {};
  if (!gone)
    idle = std::chrono::steady_clock::now();
  parser.emplace();
  parser->header_limit(std::uint32_t(shared.limits.headerBytes));
  parser->body_limit(shared.limits.bodyBytes);
  // One timeout for the whole head: single bytes do not extend it.
  stream.expires_after(shared.limits.idleTime);
  http::async_read_header(
      stream, buffer, *parser,
      [self = shared_from_this()](Error error, std::size_t) {
        self->idle.reset();
        if (error)
          return self->fail(error);
        self->readBody();
      });
}

void HttpConnection::readBody() {
  const auto &message = parser->get();
  std::string_view target = viewOf(message.target());
  keepAlive = message.keep_alive();
  version = message.version();
  std::size_t mark = std::min(target.find('?'), target.size());
  head = {std::string(viewOf(message.method_string())),
          std::string(target.substr(0, mark)),
          std::string(target.substr(std::min(mark + 1, target.size()))),
          std::string(viewOf(message[http::field::authorization])),
          std::string(viewOf(message["X-Api-Key"])),
          std::string(viewOf(message[http::field::if_none_match])),
          viewOf(message["Sec-Fetch-Site"]) == "cross-site",
          std::string(viewOf(message["traceparent"])),
          {}};
  if (std::string refusal = shared.handler.refuse(head); !refusal.empty()) {
    keepAlive = false; // its body is not read
    answering = true;
    auto answer = std::make_shared<Reply>(shared_from_this());
    reply = answer;
    return answer->send(401, "application/json", std::move(refusal),
                        "WWW-Authenticate: Bearer\r\n"
                        "WWW-Authenticate: Basic realm=\"the API key is "
                        "the password\"\r\n");
  }
  group = shared.handler.groupOf(head); // everything before it has been sent
  stream.expires_after(shared.limits.requestTime);
  // Answer "Expect: 100-continue".
  if (boost::beast::iequals(message[http::field::expect], "100-continue")) {
    static constexpr std::string_view go = "HTTP/1.1 100 Continue\r\n\r\n";
    Error ignored; // if the peer has gone, the next read fails
    stream.socket().send(net::buffer(go.data(), go.size()), 0, ignored);
  }
  http::async_read(stream, buffer, *parser,
                   [self = shared_from_this()](Error error, std::size_t) {
                     if (error)
                       return self->fail(error);
                     self->onRequest();
                   });
}

void HttpConnection::onRequest() {
  head.body = std::move(parser->get().body());
  stream.expires_never();
  answering = true;
  auto answer = std::make_shared<Reply>(shared_from_this());
  reply = answer;
  watchPeer();
  shared.handler.handle(std::move(head), std::move(answer));
}

/// The error of 413 and 431: the limit, and the announced size if known.
std::string HttpConnection::problemOf(Error error, int status) const {
  const HttpLimits &limits = shared.limits;
  if (status == 431)
    return fmt::format("the head of the request is too large: the limit is "
                       "{} bytes",
                       limits.headerBytes);
  if (status != 413)
    return "malformed request: " + error.message();
  std::string_view length = viewOf(parser->get()[http::field::content_length]);
  return fmt::format(
      "the body is too large: the limit is {} bytes{}", limits.bodyBytes,
      length.empty() ? std::string() : fmt::format(", got {}", length));
}

// The input was malformed or incomplete.
void HttpConnection::fail(Error error) {
  int status = 400;
  if (error == http::error::body_limit)
    status = 413;
  else if (error == http::error::header_limit ||
           error == http::error::buffer_overflow)
    status = 431;
  else if (error == http::error::end_of_stream ||
           error == http::error::partial_message ||
           error.category() != http::make_error_code(http::error{}).category())
    return drop(); // the peer has gone, or is too slow
  keepAlive = false;
  answering = true;
  auto answer = std::make_shared<Reply>(shared_from_this());
  reply = answer;
  // The start line may have been read before the error.
  const std::string_view target = viewOf(parser->get().target());
  answer->send(status, "application/json",
               shared.handler.describe(status, problemOf(error, status),
                                       target.substr(0, target.find('?'))),
               {});
}

// Cancels the work for a peer that disconnects.
void HttpConnection::watchPeer() {
  stream.socket().async_wait(
      net::ip::tcp::socket::wait_read, [self = weak_from_this()](Error error) {
        auto connection = self.lock();
        if (!connection || error || !connection->answering)
          return;
        char byte = 0;
        int descriptor = connection->stream.socket().native_handle();
        // Any input is the next request, which is read later.
        if (::recv(descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
          connection->drop();
      });
}

//===--- answers ----------------------------------------------------------===//

void HttpConnection::write(std::string bytes, bool isLast, bool isFree) {
  if (gone)
    return;
  lastQueued |= isLast;
  unsentBytes += bytes.size();
  shared.unsent[group] += bytes.size();
  if (isFree)
    freeBytes += bytes.size();
  unsent.push_back(std::move(bytes));
  // A response that is sent at once may be of any size.
  if (!isLast && unsentBytes > shared.limits.unsentBytes + freeBytes)
    return drop();
  if (!writing)
    writeNext();
}

void HttpConnection::writeNext() {
  if (unsent.empty()) {
    writing = false;
    freeBytes = 0;
    if (lastQueued)
      answered();
    return;
  }
  writing = true;
  // The timeout is per write: a slow reader that makes progress is kept.
  constexpr std::size_t kPart = std::size_t(64) << 10;
  stream.expires_after(shared.limits.writeTime);
  net::async_write(stream,
                   net::buffer(net::buffer(unsent.front()) + unsentAt, kPart),
                   [self = shared_from_this()](Error error, std::size_t count) {
                     if (self->gone)
                       return;
                     if (error)
                       return self->drop();
                     self->stream.expires_never();
                     self->unsentBytes -= count;
                     self->shared.unsent[self->group] -= count;
                     self->unsentAt += count;
                     if (self->unsentAt == self->unsent.front().size()) {
                       self->unsent.pop_front();
                       self->unsentAt = 0;
                     }
                     self->writeNext();
                   });
}

void HttpConnection::answered() {
  answering = false;
  stream.socket().cancel(); // watchPeer
  if (!keepAlive || shared.closing) {
    Error ignored; // the peer may have closed already
    stream.socket().shutdown(net::ip::tcp::socket::shutdown_send, ignored);
    stream.expires_after(std::chrono::seconds(1));
    return discard();
  }
  net::post(stream.get_executor(),
            [self = shared_from_this()] { self->readHead(); });
}

// Closing a socket with unread input resets the connection, and the peer may
// lose the response. So read the rest first.
void HttpConnection::discard() {
  buffer.consume(buffer.size());
  stream.async_read_some(
      buffer.prepare(4096),
      [self = shared_from_this()](Error error, std::size_t count) {
        self->discarded += count;
        if (error || self->discarded > 2 * self->shared.limits.bodyBytes)
          return self->drop();
        self->discard();
      });
}

void HttpConnection::closeIfIdle() {
  if (!answering)
    drop();
}

void HttpConnection::drop() {
  if (std::exchange(gone, true))
    return;
  idle.reset();
  Error ignored; // nothing more can be done
  stream.socket().close(ignored);
  if (auto answer = reply.lock())
    answer->lose();
}

} // namespace tessera::serve
