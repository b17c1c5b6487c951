// libFuzzer target: whatever bytes a client sends and then closes, the
// connection answers in whole lines of HTTP or not at all, ends, and leaves
// nothing behind.
#include "runtime/serve/HttpConnection.h"

#include <boost/asio/io_context.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

using namespace tessera::serve;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

namespace {
class Handler final : public HttpHandler {
public:
  std::string refuse(const HttpRequest &head) override {
    return head.authorization == "no" ? "{}" : "";
  }
  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply) override {
    require(request.path.find('?') == std::string::npos);
    if (request.path != "/stream")
      return reply->send(200, "text/plain", std::move(request.body));
    reply->onGone = [] {};
    reply->begin();
    reply->event(request.method);
    reply->end({});
  }
  std::string describe(int status, std::string_view message,
                       std::string_view) override {
    require(status >= 400 && !message.empty());
    return "{}";
  }
};
} // namespace

/// Sends all of it to a connection of its own and returns the answers.
static std::string exchange(const uint8_t *data, size_t size) {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  int space = 4 << 20; // what is sent is there before anybody reads
  ::setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &space, sizeof(space));
  require(::send(ends[1], data, size, MSG_NOSIGNAL) == ssize_t(size));
  require(::shutdown(ends[1], SHUT_WR) == 0);
  Handler handler;
  HttpLimits limits;
  limits.headerBytes = 2048;
  limits.bodyBytes = 2048;
  std::string answers;
  {
    boost::asio::io_context context;
    HttpShared shared{limits, handler, 0, {}, false, nullptr};
    std::make_shared<HttpConnection>(
        boost::asio::ip::tcp::socket(context, boost::asio::ip::tcp::v4(),
                                     ends[0]),
        shared)
        ->start();
    char buffer[4096];
    while (context.run_one_for(std::chrono::seconds(5)) > 0)
      for (ssize_t count = 0;
           (count = ::recv(ends[1], buffer, sizeof buffer, MSG_DONTWAIT)) > 0;)
        answers.append(buffer, size_t(count));
    require(shared.open == 0); // or it waits for what never comes
    for (const auto &[group, bytes] : shared.unsent)
      require(bytes == 0);
  }
  ::close(ends[1]);
  return answers;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size > (64 << 10))
    return 0;
  std::string answers = exchange(data, size);
  require(answers.empty() || answers.starts_with("HTTP/1.1 "));
  return 0;
}
