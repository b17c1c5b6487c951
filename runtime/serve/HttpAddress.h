// An address of this machine that is taken for a server before there is one.
#pragma once
#include "runtime/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tessera::serve {

/// A model may take minutes to load: that its port is another's is known
/// before. As long as the address is only held nobody else gets it, and whoever
/// connects is refused by the system, as where there is no server.
class HttpAddress {
public:
  /// `port` 0: one that is free. Lets the process open as many files as so many
  /// connections take.
  static StatusOr<std::shared_ptr<HttpAddress>>
  take(const std::string &host, uint16_t port, std::size_t connections);
  HttpAddress(const HttpAddress &) = delete;
  HttpAddress &operator=(const HttpAddress &) = delete;
  ~HttpAddress();

  /// What was bound, also if 0 was asked for.
  uint16_t port() const;
  bool isIpv6() const { return ipv6; }
  /// From here on the system takes connections. The socket, which the caller
  /// closes; once.
  StatusOr<int> listen();

private:
  HttpAddress(std::string host, int descriptor, bool ipv6)
      : host(std::move(host)), descriptor(descriptor), ipv6(ipv6) {}
  const std::string host;
  int descriptor; ///< -1: it is the caller's
  const bool ipv6;
};

} // namespace tessera::serve
