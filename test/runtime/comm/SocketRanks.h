// Ranks of one process whose messages go through sockets.
#pragma once
#include "ThreadRanks.h"
#include "runtime/comm/tcp/TcpTransport.h"

#include <gtest/gtest.h>

#include <sys/socket.h>

namespace tessera::comm {

inline std::vector<std::vector<Socket>> socketPairs(int size) {
  const auto n = static_cast<std::size_t>(size);
  std::vector<std::vector<Socket>> links(n);
  for (auto &row : links)
    for (std::size_t i = 0; i < n; ++i)
      row.emplace_back();
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = a + 1; b < n; ++b) {
      int pair[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
      links[a][b] = Socket(pair[0]);
      links[b][a] = Socket(pair[1]);
    }
  return links;
}

inline Transports socketTransports(int size) {
  Transports transports;
  for (auto &links : socketPairs(size)) {
    auto transport = overSockets(std::move(links),
                                 static_cast<int>(transports.size()), false);
    EXPECT_TRUE(transport.ok()) << transport.message();
    transports.push_back(transport.take());
  }
  return transports;
}

} // namespace tessera::comm
