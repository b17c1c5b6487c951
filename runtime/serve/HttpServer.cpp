#include "runtime/serve/HttpServer.h"
#include "runtime/serve/HttpConnection.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>

#include <csignal>
#include <list>

#include <unistd.h>

namespace tessera::serve {

namespace net = boost::asio;
using Tcp = net::ip::tcp;
using Error = boost::system::error_code;

namespace {

class BeastServer final : public HttpServer {
public:
  BeastServer(const HttpLimits &limits, HttpHandler &handler)
      : shared{limits, handler, 0, {}, false, nullptr}, acceptor(context),
        signals(context) {
    shared.onClosed = [this] {
      if (ending && shared.open == 0)
        context.stop();
    };
  }
  ~BeastServer() override { shared.onClosed = nullptr; }

  Status listen(HttpAddress &address) {
    auto socket = address.listen();
    if (!socket.ok())
      return socket.status();
    Error error;
    acceptor.assign(address.isIpv6() ? Tcp::v6() : Tcp::v4(), *socket, error);
    if (!error)
      return Status::success();
    ::close(*socket);
    return Status::error("cannot use the address: {}", error.message());
  }

  uint16_t port() const override {
    Error error;
    return acceptor.local_endpoint(error).port();
  }

  void run(std::function<void()> onSignal) override {
    signals.add(SIGINT);
    signals.add(SIGTERM);
    signals.async_wait([this, onSignal](Error error, int) {
      if (error)
        return;
      signals.clear(); // the next one has its default action
      onSignal();
    });
    accept();
    context.run();
  }

  void post(std::function<void()> task) override {
    net::post(context, std::move(task));
  }
  void after(std::chrono::milliseconds time,
             std::function<void()> task) override {
    auto timer = std::make_shared<net::steady_timer>(context, time);
    timer->async_wait([timer, task = std::move(task)](Error error) {
      if (!error)
        task();
    });
  }

  std::chrono::milliseconds pingTime() const override {
    return shared.limits.pingTime;
  }

  bool isPiledUp(std::size_t group, std::size_t groups) const override {
    auto at = shared.unsent.find(group);
    return at != shared.unsent.end() &&
           at->second > shared.limits.unreadBytes / groups;
  }

  void refuseNew() override {
    shared.closing = true;
    Error ignored; // it is closed either way
    acceptor.close(ignored);
    forEach([](HttpConnection &each) { each.closeIfIdle(); });
  }

  void close(std::chrono::milliseconds grace) override {
    refuseNew();
    ending = true;
    if (shared.open == 0)
      return context.stop();
    after(grace, [this] { context.stop(); });
  }

private:
  template <typename Visit> void forEach(const Visit &visit) {
    auto copy = connections;
    for (const auto &each : copy)
      if (auto connection = each.lock())
        visit(*connection);
  }

  void accept() {
    acceptor.async_accept([this](Error error, Tcp::socket socket) {
      if (!acceptor.is_open())
        return;
      if (error) // perhaps out of descriptors: do not spin
        return after(std::chrono::milliseconds(100), [this] { accept(); });
      take(std::move(socket));
      accept();
    });
  }

  void take(Tcp::socket socket) {
    if (connections.size() > 2 * shared.open + 16)
      connections.remove_if([](const auto &each) { return each.expired(); });
    if (shared.open >= shared.limits.connections && !makeRoom()) {
      return refuse(socket);
    }
    Error ignored; // only slower without
    socket.set_option(Tcp::no_delay(true), ignored);
    // What Beast sends by itself (100 Continue) must not block.
    socket.non_blocking(true, ignored);
    auto connection =
        std::make_shared<HttpConnection>(std::move(socket), shared);
    connections.push_back(connection);
    connection->start();
  }

  void refuse(Tcp::socket &socket) {
    std::string body = shared.handler.describe(
        503,
        fmt::format("{} connections are open, and none waits for its next "
                    "request",
                    shared.open),
        /*path=*/"");
    std::string busy = fmt::format(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json"
        "\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: {}"
        "\r\n\r\n{}",
        body.size(), body);
    Error ignored; // best effort
    socket.non_blocking(true, ignored);
    socket.send(net::buffer(busy), 0, ignored);
    socket.shutdown(Tcp::socket::shutdown_send, ignored);
    // Unread input would reset the connection and lose the response.
    std::array<char, 16 << 10> request;
    socket.receive(net::buffer(request), 0, ignored);
  }

  /// Closes the longest idle connection, so that idle ones cannot block new
  /// ones.
  bool makeRoom() {
    std::shared_ptr<HttpConnection> longest;
    for (const auto &each : connections)
      if (auto one = each.lock(); one && one->idleSince())
        if (!longest || *one->idleSince() < *longest->idleSince())
          longest = std::move(one);
    if (longest)
      longest->closeIfIdle();
    return longest != nullptr;
  }

  HttpShared shared; ///< outlives the context, whose handlers hold connections
  net::io_context context{1};
  Tcp::acceptor acceptor;
  net::signal_set signals;
  std::list<std::weak_ptr<HttpConnection>> connections;
  bool ending = false;
};

} // namespace

StatusOr<std::unique_ptr<HttpServer>>
HttpServer::listen(HttpAddress &address, const HttpLimits &limits,
                   HttpHandler &handler) {
  auto server = std::make_unique<BeastServer>(limits, handler);
  TESSERA_RETURN_IF_ERROR(server->listen(address));
  return std::unique_ptr<HttpServer>(std::move(server));
}

} // namespace tessera::serve
