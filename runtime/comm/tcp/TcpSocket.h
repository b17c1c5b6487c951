// Stream sockets with an owner and with deadlines.
#pragma once
#include "runtime/support/Status.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::comm {

/// A file descriptor with an owner; -1: none.
class Socket {
public:
  explicit Socket(int fd = -1) : fd(fd) {}
  Socket(Socket &&other) noexcept : fd(std::exchange(other.fd, -1)) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(fd, other.fd);
    return *this;
  }
  ~Socket();
  int get() const { return fd; }
  explicit operator bool() const { return fd >= 0; }

private:
  int fd;
};

using SocketClock = std::chrono::steady_clock;

/// Whether the socket was ready for `events` (of poll) before the deadline.
bool await(int fd, short events, SocketClock::time_point deadline);
/// False: the peer has gone, or the deadline has passed.
bool readBytes(int fd, std::span<std::byte> bytes,
               SocketClock::time_point deadline);
bool writeBytes(int fd, std::span<const std::byte> bytes,
                SocketClock::time_point deadline);

/// Where a server listens. The host is a name or an address.
struct TcpAddress {
  std::string host;
  int port = 0;

  /// Of "HOST:PORT"; an IPv6 address is in brackets, as in "[::1]:7000".
  static StatusOr<TcpAddress> parse(std::string_view text);
  std::string text() const;
};

/// A listening socket at the first address of the host that can be bound. Port
/// 0: any free one.
StatusOr<Socket> listenAt(const TcpAddress &address);
/// Tries all addresses of the host, each once.
StatusOr<Socket> connectTo(const TcpAddress &address);

/// The address of this end or of the other one, of a TCP socket.
StatusOr<TcpAddress> localAddress(int fd);
StatusOr<TcpAddress> peerAddress(int fd);
/// Whether only this machine can reach a socket that is bound there.
bool isLoopback(const TcpAddress &numeric);

/// Small messages are sent at once, and a peer whose machine cannot be reached
/// for `limit` is an error of the next send or receive.
void detectLoss(int fd, std::chrono::seconds limit);

} // namespace tessera::comm
