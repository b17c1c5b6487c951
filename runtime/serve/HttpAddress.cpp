#include "runtime/serve/HttpAddress.h"

#include <boost/asio/ip/tcp.hpp>

#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tessera::serve {

using Tcp = boost::asio::ip::tcp;

/// Open files for the connections and the rest of the process.
static Status allowFiles(std::size_t connections) {
  const rlim_t needed = connections + 64;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed)
    return Status::success();
  if (limit.rlim_max >= needed) {
    limit.rlim_cur = needed;
    if (::setrlimit(RLIMIT_NOFILE, &limit) == 0)
      return Status::success();
  }
  return Status::error("--max-connections {} needs {} open files, and the "
                       "system allows {}; lower it, or raise ulimit -n",
                       connections, needed, limit.rlim_max);
}

static Status cannotListen(const std::string &host, uint16_t port, int error) {
  return Status::error("cannot listen on {}:{}: {}; choose another {}", host,
                       port, std::strerror(error),
                       error == EADDRNOTAVAIL ? "--host" : "--port");
}

// Connections that ended a moment ago (TIME_WAIT) block a port unless
// SO_REUSEADDR is set.
static int reuse(int descriptor) {
  const int on = 1;
  return ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
}

StatusOr<std::shared_ptr<HttpAddress>>
HttpAddress::take(const std::string &host, uint16_t port,
                  std::size_t connections) {
  TESSERA_RETURN_IF_ERROR(allowFiles(connections));
  boost::system::error_code bad;
  const auto address = boost::asio::ip::make_address(host, bad);
  if (bad)
    return Status::error("--host must be an address such as 127.0.0.1, got: "
                         "'{}'",
                         host);
  const Tcp::endpoint endpoint(address, port);
  const int descriptor = ::socket(endpoint.protocol().family(),
                                  SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
  if (descriptor < 0)
    return cannotListen(host, port, errno);
  std::shared_ptr<HttpAddress> taken(
      new HttpAddress(host, descriptor, address.is_v6()));
  auto bind = [&] {
    return ::bind(descriptor, endpoint.data(), socklen_t(endpoint.size()));
  };
  // Bind without SO_REUSEADDR first: two sockets with it could share the
  // address until one listens.
  if (bind() != 0 &&
      (errno != EADDRINUSE || reuse(descriptor) != 0 || bind() != 0))
    return cannotListen(host, port, errno);
  return taken;
}

HttpAddress::~HttpAddress() {
  if (descriptor >= 0)
    ::close(descriptor);
}

uint16_t HttpAddress::port() const {
  Tcp::endpoint bound;
  auto size = socklen_t(bound.capacity());
  if (::getsockname(descriptor, bound.data(), &size) != 0)
    return 0;
  return bound.port();
}

StatusOr<int> HttpAddress::listen() {
  // Connections inherit it, for the next owner of the port.
  if (reuse(descriptor) != 0 || ::listen(descriptor, SOMAXCONN) != 0)
    return cannotListen(host, port(), errno);
  return std::exchange(descriptor, -1);
}

} // namespace tessera::serve
