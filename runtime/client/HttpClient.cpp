#include "runtime/client/HttpClient.h"
#include "runtime/support/Text.h"

#include <array>
#include <charconv>
#include <limits>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <nlohmann/json.hpp>

namespace tessera::client {

namespace net = boost::asio;
namespace http = boost::beast::http;
using Error = boost::beast::error_code;

StatusOr<ServerAddress> parseServerUrl(std::string_view url) {
  constexpr std::string_view scheme = "http://";
  if (!url.starts_with(scheme))
    return Status::error("the server must be http://HOST:PORT, got: '{}'", url);
  std::string_view rest = url.substr(scheme.size());
  std::string_view authority = rest.substr(0, rest.find('/'));
  std::string_view path = rest.substr(authority.size());
  while (path.ends_with('/'))
    path.remove_suffix(1);
  if (path.ends_with("/v1")) // as OpenAI clients write it
    path.remove_suffix(3);
  std::string_view host = authority, port = "80";
  // An IPv6 address contains colons, in brackets.
  if (std::size_t colon = authority.rfind(':');
      colon != std::string_view::npos && !authority.ends_with(']')) {
    host = authority.substr(0, colon);
    port = authority.substr(colon + 1);
  }
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  uint16_t number = 0;
  auto [end, code] =
      std::from_chars(port.data(), port.data() + port.size(), number);
  if (host.empty() || code != std::errc() || end != port.data() + port.size())
    return Status::error("the server must be http://HOST:PORT, got: '{}'", url);
  return ServerAddress{
      std::string(host), std::string(port), std::string(path), {}};
}

namespace {

/// Splits a stream that arrives in chunks into its data lines.
class EventReader {
public:
  explicit EventReader(const std::function<void(std::string_view)> &event)
      : event(event) {}
  void push(std::string_view text) {
    held += text;
    std::size_t begin = 0;
    for (std::size_t end; (end = held.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      std::string_view line = std::string_view(held).substr(begin, end - begin);
      if (line.starts_with("data: "))
        event(line.substr(6));
    }
    held.erase(0, begin);
  }

private:
  const std::function<void(std::string_view)> &event;
  std::string held;
};

class Call {
public:
  Call(const ServerAddress &server, std::chrono::milliseconds timeout,
       const std::function<bool()> &stop)
      : server(server), stop(stop), stream(context) {
    stream.expires_after(timeout); // of the whole request
  }

  Status connect() {
    Error error;
    net::ip::tcp::resolver resolver(context);
    auto endpoints = resolver.resolve(server.host, server.port, error);
    if (error)
      return failed("find", error);
    error = run([&](auto done) {
      stream.async_connect(
          endpoints, [done](Error found, const auto &) { done(found, 0); });
    });
    return error ? failed("connect to", error) : Status::success();
  }

  Status send(std::string_view method, std::string_view path,
              std::string_view body) {
    http::request<http::string_body> request;
    request.method_string({method.data(), method.size()});
    request.target(server.path + std::string(path));
    request.set(http::field::host, server.host);
    request.set(http::field::connection, "close");
    if (!server.authorization.empty())
      request.set(http::field::authorization, server.authorization);
    if (!body.empty())
      request.set(http::field::content_type, "application/json");
    request.body() = body;
    request.prepare_payload();
    Error error =
        run([&](auto done) { http::async_write(stream, request, done); });
    return error ? failed("write to", error) : Status::success();
  }

  StatusOr<ServerAnswer>
  receive(const std::function<void(std::string_view)> &event) {
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(std::numeric_limits<std::uint64_t>::max());
    if (Error error = run([&](auto done) {
          http::async_read_header(stream, buffer, parser, done);
        }))
      return failed("read from", error);
    ServerAnswer answer;
    answer.status = int(parser.get().result_int());
    auto type = parser.get()[http::field::content_type];
    bool isStream = type.starts_with("text/event-stream");
    EventReader events(event);
    std::array<char, 16384> part;
    while (!parser.is_done()) {
      parser.get().body().data = part.data();
      parser.get().body().size = part.size();
      Error error = run([&](auto done) {
        http::async_read_some(stream, buffer, parser, done);
      });
      if (error && error != http::error::need_buffer)
        return failed("read from", error);
      std::string_view got(part.data(), part.size() - parser.get().body().size);
      if (isStream)
        events.push(got);
      else if (answer.body.size() + got.size() > kMostBody)
        return Status::error("the server's answer is longer than {} MiB",
                             kMostBody >> 20);
      else
        answer.body += got;
    }
    return answer;
  }

private:
  static constexpr std::size_t kMostBody = 64 << 20;

  /// Starts an operation and waits for it, for the stream's timeout, or until
  /// it is to stop.
  template <typename Start> Error run(const Start &start) {
    Error result = net::error::operation_aborted;
    start([&](Error error, std::size_t) { result = error; });
    context.restart();
    constexpr auto kSlice = std::chrono::milliseconds(100);
    while (context.run_for(kSlice), !context.stopped())
      if (stop && stop())
        stream.cancel();
    return result;
  }
  Status failed(std::string_view what, Error error) const {
    return Status::error("cannot {} {}:{}: {}", what, server.host, server.port,
                         error.message());
  }

  const ServerAddress &server;
  const std::function<bool()> &stop;
  net::io_context context{1};
  boost::beast::tcp_stream stream;
  boost::beast::flat_buffer buffer;
};

} // namespace

StatusOr<ServerAnswer>
askServer(const ServerAddress &server, std::string_view method,
          std::string_view path, std::string_view body,
          std::chrono::milliseconds timeout,
          const std::function<void(std::string_view)> &event,
          const std::function<bool()> &stop) {
  Call call(server, timeout, stop);
  TESSERA_RETURN_IF_ERROR(call.connect());
  TESSERA_RETURN_IF_ERROR(call.send(method, path, body));
  return call.receive(event);
}

StatusOr<std::string> firstModel(const ServerAddress &server) {
  auto answer = askServer(server, "GET", "/v1/models", "",
                          std::chrono::seconds(30), [](std::string_view) {});
  if (!answer.ok())
    return answer.status();
  const auto json = nlohmann::json::parse(answer->body, nullptr,
                                          /*allow_exceptions=*/false);
  const auto id = nlohmann::json::json_pointer("/data/0/id");
  if (json.is_object() && json.contains(id) && json[id].is_string())
    return json[id].get<std::string>();
  return Status::error("/v1/models answers {}: {}", answer->status,
                       oneLine(answer->body));
}

} // namespace tessera::client
