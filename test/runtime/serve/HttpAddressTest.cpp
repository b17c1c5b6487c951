#include "runtime/serve/HttpAddress.h"

#include <cerrno>
#include <cstdint>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace tessera;
using namespace tessera::serve;

namespace {
constexpr std::size_t kConnections = 8;
constexpr const char *kHost = "127.0.0.1";

/// The error of a connection to the port; 0: there is one, which ends at once.
int connectTo(uint16_t port) {
  int peer = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ::inet_pton(AF_INET, kHost, &address.sin_addr);
  int failed = ::connect(peer, reinterpret_cast<sockaddr *>(&address),
                         sizeof address) != 0
                   ? errno
                   : 0;
  ::close(peer);
  return failed;
}
} // namespace

TEST(HttpAddress, IsHeldWithoutTakingConnections) {
  auto address = HttpAddress::take(kHost, 0, kConnections);
  ASSERT_TRUE(address.ok()) << address.message();
  const uint16_t port = (*address)->port();
  ASSERT_NE(port, 0);
  EXPECT_FALSE((*address)->isIpv6());
  EXPECT_EQ(connectTo(port), ECONNREFUSED);
  const std::string busy =
      "cannot listen on 127.0.0.1:" + std::to_string(port) +
      ": Address already in use; choose another --port";
  EXPECT_EQ(HttpAddress::take(kHost, port, kConnections).message(), busy);

  auto socket = (*address)->listen();
  ASSERT_TRUE(socket.ok()) << socket.message();
  EXPECT_EQ(connectTo(port), 0);
  EXPECT_EQ(HttpAddress::take(kHost, port, kConnections).message(), busy);
  ::close(*socket);
  EXPECT_TRUE(HttpAddress::take(kHost, port, kConnections).ok());
}

TEST(HttpAddress, IsFreeWhenNobodyHoldsIt) {
  uint16_t port = 0;
  {
    auto address = HttpAddress::take(kHost, 0, kConnections);
    ASSERT_TRUE(address.ok());
    port = (*address)->port();
  }
  EXPECT_TRUE(HttpAddress::take(kHost, port, kConnections).ok());
}

TEST(HttpAddress, SaysWhatIsWrong) {
  EXPECT_EQ(HttpAddress::take("localhost", 0, kConnections).message(),
            "--host must be an address such as 127.0.0.1, got: 'localhost'");
  EXPECT_EQ(HttpAddress::take("192.0.2.1", 0, kConnections).message(),
            "cannot listen on 192.0.2.1:0: Cannot assign requested address; "
            "choose another --host");
  EXPECT_TRUE(HttpAddress::take(kHost, 0, std::size_t(1) << 40)
                  .message()
                  .starts_with("--max-connections 1099511627776 needs "));
}
