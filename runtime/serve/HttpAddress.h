// Reserves the address of a server before the server exists.
#pragma once
#include "runtime/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tessera::serve {

/// Loading a model may take minutes; an address in use is an error before that.
/// While the address is only reserved, no other process can bind it, and
/// connections are refused as if there were no server.
class HttpAddress {
public:
  /// `port` 0: any free one. Raises the process's limit of open files for so
  /// many connections.
  static StatusOr<std::shared_ptr<HttpAddress>>
  take(const std::string &host, uint16_t port, std::size_t connections);
  HttpAddress(const HttpAddress &) = delete;
  HttpAddress &operator=(const HttpAddress &) = delete;
  ~HttpAddress();

  /// The bound port, also for `port` 0.
  uint16_t port() const;
  bool isIpv6() const { return ipv6; }
  /// Listens. The caller closes the socket; call once.
  /// closes; once.
  StatusOr<int> listen();

private:
  HttpAddress(std::string host, int descriptor, bool ipv6)
      : host(std::move(host)), descriptor(descriptor), ipv6(ipv6) {}
  const std::string host;
  int descriptor; ///< -1: passed to the caller
  const bool ipv6;
};

} // namespace tessera::serve
