// One connection of HttpServer: request, response, request, ... Runs in the
// server's thread.
#pragma once
#include "runtime/serve/HttpServer.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <string>

namespace tessera::serve {

/// State that the connections of a server share.
struct HttpShared {
  HttpLimits limits;
  HttpHandler &handler;
  std::size_t open = 0;                      ///< connections
  std::map<std::size_t, std::size_t> unsent; ///< bytes, by group
  bool closing = false;           ///< close each connection after its response
  std::function<void()> onClosed; ///< after a connection has closed
};

class HttpConnection final
    : public std::enable_shared_from_this<HttpConnection> {
public:
  HttpConnection(boost::asio::ip::tcp::socket socket, HttpShared &shared);
  ~HttpConnection();
  void start() { readHead(); }
  /// Closes it unless a response is in progress.
  void closeIfIdle();
  /// Since when it has waited for the head of a request; nothing: it does not
  /// wait.
  std::optional<std::chrono::steady_clock::time_point> idleSince() const {
    return idle;
  }

private:
  class Reply;
  using Parser =
      boost::beast::http::request_parser<boost::beast::http::string_body>;
  using Error = boost::beast::error_code;
  static constexpr std::size_t kNoGroup = ~std::size_t(0);

  void readHead();
  void readBody();
  void onRequest();
  void fail(Error error);
  std::string problemOf(Error error, int status) const;
  void watchPeer();

  /// `isFree`: exempt from the limit of unsent bytes.
  void write(std::string bytes, bool isLast, bool isFree = false);
  void writeNext();
  void answered();
  void discard();
  void drop();

  boost::beast::tcp_stream stream;
  boost::beast::flat_buffer buffer;
  std::optional<Parser> parser;
  HttpShared &shared;
  HttpRequest head;
  std::weak_ptr<Reply> reply;
  std::deque<std::string> unsent;
  std::size_t unsentAt = 0; ///< bytes of the first that are written
  std::size_t unsentBytes = 0, freeBytes = 0, discarded = 0;
  std::size_t group = kNoGroup; ///< of its unsent bytes
  bool writing = false, answering = false, lastQueued = false;
  bool keepAlive = false, gone = false;
  std::optional<std::chrono::steady_clock::time_point> idle;
  unsigned version = 11;
};

} // namespace tessera::serve
