#include "runtime/comm/tcp/TcpSocket.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tessera::comm {

using std::chrono::milliseconds;

/// For a machine that does not answer.
constexpr std::chrono::seconds kConnect{10};

Socket::~Socket() {
  if (fd >= 0)
    ::close(fd);
}

bool await(int fd, short events, SocketClock::time_point deadline) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<milliseconds>(deadline - SocketClock::now());
    pollfd entry{fd, events, 0};
    const int ready = ::poll(
        &entry, 1, static_cast<int>(std::max(left, milliseconds(0)).count()));
    if (ready >= 0 || errno != EINTR)
      return ready > 0;
  }
}

bool readBytes(int fd, std::span<std::byte> bytes,
               SocketClock::time_point deadline) {
  while (!bytes.empty()) {
    if (!await(fd, POLLIN, deadline))
      return false;
    const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (got == 0 || (got < 0 && errno != EINTR))
      return false;
    bytes = bytes.subspan(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
  return true;
}

bool writeBytes(int fd, std::span<const std::byte> bytes,
                SocketClock::time_point deadline) {
  while (!bytes.empty()) {
    if (!await(fd, POLLOUT, deadline))
      return false;
    const ssize_t put = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (put < 0 && errno != EINTR)
      return false;
    bytes = bytes.subspan(static_cast<std::size_t>(std::max<ssize_t>(put, 0)));
  }
  return true;
}

//===--- addresses --------------------------------------------------------===//

StatusOr<TcpAddress> TcpAddress::parse(std::string_view text) {
  const auto bad = [&] {
    return Status::error("'{}' is not HOST:PORT, such as 10.0.0.1:7000 or "
                         "[::1]:7000",
                         text);
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos)
    return bad();
  std::string_view host = text.substr(0, colon),
                   digits = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return bad();
  TcpAddress address{std::string(host), -1};
  const auto [end, error] = std::from_chars(
      digits.data(), digits.data() + digits.size(), address.port);
  if (host.empty() || error != std::errc() ||
      end != digits.data() + digits.size() || address.port < 0 ||
      address.port > 65535)
    return bad();
  return address;
}

std::string TcpAddress::text() const {
  return host.find(':') == std::string::npos
             ? fmt::format("{}:{}", host, port)
             : fmt::format("[{}]:{}", host, port);
}

namespace {
struct FreeAddresses {
  void operator()(addrinfo *first) const { ::freeaddrinfo(first); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;
} // namespace

static StatusOr<Addresses> resolve(const TcpAddress &address, int flags) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  const int failure =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(),
                    &hints, &found);
  if (failure != 0)
    return Status::error("cannot find the host '{}': {}", address.host,
                         ::gai_strerror(failure));
  return Addresses(found);
}

StatusOr<Socket> listenAt(const TcpAddress &address) {
  auto found = resolve(address, AI_PASSIVE);
  if (!found.ok())
    return found.status();
  int error = 0;
  for (const addrinfo *one = found->get(); one; one = one->ai_next) {
    Socket socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int yes = 1;
    if (socket)
      ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (socket && ::bind(socket.get(), one->ai_addr, one->ai_addrlen) == 0 &&
        ::listen(socket.get(), SOMAXCONN) == 0)
      return socket;
    error = errno;
  }
  return Status::error("cannot listen on {}: {}", address.text(),
                       std::strerror(error));
}

StatusOr<Socket> connectTo(const TcpAddress &address) {
  auto found = resolve(address, 0);
  if (!found.ok())
    return found.status();
  int error = 0;
  for (const addrinfo *one = found->get(); one; one = one->ai_next) {
    Socket socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // connect() has the time limit of sends.
    timeval limit{kConnect.count(), 0}, none{};
    if (socket)
      ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (socket && ::connect(socket.get(), one->ai_addr, one->ai_addrlen) == 0) {
      ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
      return socket;
    }
    error = errno == EINPROGRESS ? ETIMEDOUT : errno;
  }
  return Status::error("cannot connect to {}: {}", address.text(),
                       std::strerror(error));
}

using GetName = int (*)(int, sockaddr *, socklen_t *);

static StatusOr<TcpAddress> nameOf(int fd, GetName get) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  auto *address = reinterpret_cast<sockaddr *>(&storage);
  char host[NI_MAXHOST] = {}, port[NI_MAXSERV] = {};
  if (get(fd, address, &length) != 0 ||
      ::getnameinfo(address, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return Status::error("a socket has no address: {}", std::strerror(errno));
  std::string_view numeric = host;
  constexpr std::string_view kMapped = "::ffff:";
  if (numeric.starts_with(kMapped))
    numeric.remove_prefix(kMapped.size());
  return TcpAddress{std::string(numeric), std::atoi(port)};
}

StatusOr<TcpAddress> localAddress(int fd) { return nameOf(fd, ::getsockname); }
StatusOr<TcpAddress> peerAddress(int fd) { return nameOf(fd, ::getpeername); }

bool isLoopback(const TcpAddress &numeric) {
  return numeric.host == "::1" || numeric.host.starts_with("127.");
}

void detectLoss(int fd, std::chrono::seconds limit) {
  constexpr int kProbes = 3;
  const int on = 1, seconds = int(limit.count());
  const int every = std::max(seconds / (kProbes + 1), 1);
  const auto milli = unsigned(milliseconds(limit).count());
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &every, sizeof every);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milli, sizeof milli);
}

} // namespace tessera::comm
