// Ranks that meet and speak without an MPI, and who else comes.
#include "SocketRanks.h"

#include <gmock/gmock.h>

#include <array>
#include <netinet/in.h>

namespace tessera::comm {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using Links = StatusOr<std::vector<Socket>>;

/// A port that nobody had a moment ago.
int freePort() {
  const Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof(address);
  EXPECT_EQ(
      ::bind(socket.get(), reinterpret_cast<sockaddr *>(&address), length), 0);
  ::getsockname(socket.get(), reinterpret_cast<sockaddr *>(&address), &length);
  return ntohs(address.sin_port);
}

Launch launchOf(int rank, int size, int port) {
  Launch launch;
  launch.starter = Launch::Starter::address;
  launch.rank = rank;
  launch.size = size;
  launch.masterAddress = "localhost";
  launch.masterPort = port;
  return launch;
}

/// A connection to the port, when somebody listens there.
Socket visit(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (;;) {
    Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
    if (::connect(socket.get(), reinterpret_cast<sockaddr *>(&address),
                  sizeof(address)) == 0)
      return socket;
    std::this_thread::sleep_for(milliseconds(5));
  }
}

/// What ranks of these launches get, `guest` being called beside them.
std::vector<Links> meet(
    const std::vector<Launch> &launches, milliseconds timeout,
    const std::function<void()> &guest = [] {}) {
  std::vector<Links> links;
  for (std::size_t i = 0; i < launches.size(); ++i)
    links.emplace_back(Status::error("not there yet"));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < launches.size(); ++i)
    threads.emplace_back([&, i] {
      if (i != 0)
        guest();
      links[i] = connectRanks(launches[i], timeout);
    });
  for (std::thread &thread : threads)
    thread.join();
  return links;
}

TEST(TcpConnect, ConnectsEveryTwoRanks) {
  constexpr int size = 4;
  const int port = freePort();
  std::vector<Launch> launches;
  for (int rank = 0; rank < size; ++rank)
    launches.push_back(launchOf(rank, size, port));
  // Before each rank come one who says nothing and goes, and one who says too
  // much.
  std::vector<Links> links = meet(launches, std::chrono::seconds(60), [port] {
    visit(port);
    const Socket guest = visit(port);
    const std::string text(5000, 'G');
    (void)::send(guest.get(), text.data(), text.size(), MSG_NOSIGNAL);
  });
  for (Links &one : links)
    ASSERT_TRUE(one.ok()) << one.message();
  for (int a = 0; a < size; ++a)
    for (int b = 0; b < size; ++b) {
      const Socket &link =
          (*links[static_cast<std::size_t>(a)])[static_cast<std::size_t>(b)];
      ASSERT_EQ(bool(link), a != b);
      const char from = static_cast<char>(10 * a + b);
      if (a != b) {
        ASSERT_EQ(::send(link.get(), &from, 1, 0), 1);
      }
    }
  for (int a = 0; a < size; ++a)
    for (int b = 0; b < size; ++b) {
      char from = 0;
      if (a == b)
        continue;
      ASSERT_EQ(
          ::recv(
              (*links[static_cast<std::size_t>(a)])[static_cast<std::size_t>(b)]
                  .get(),
              &from, 1, 0),
          1);
      EXPECT_EQ(from, 10 * b + a);
    }
}

TEST(TcpConnect, NamesWhoDoesNotCome) {
  const int port = freePort();
  std::vector<Links> links =
      meet({launchOf(0, 3, port), launchOf(2, 3, port)}, milliseconds(600));
  EXPECT_EQ(links[0].message(), "rank 0 has waited for 0.6 s to come from rank "
                                "1");
  EXPECT_FALSE(links[1].ok());
  EXPECT_THAT(
      meet({launchOf(1, 2, freePort())}, milliseconds(200))[0].message(),
      HasSubstr("rank 1 could not reach rank 0 for 0.2 s: Connection refused "
                "(at localhost port "));
}

TEST(TcpConnect, RefusesJobsThatDoNotMatch) {
  const int port = freePort();
  EXPECT_EQ(
      meet({launchOf(0, 2, port), launchOf(1, 3, port)}, milliseconds(2000))[0]
          .message(),
      "rank 1 belongs to a job of 3 ranks, rank 0 to one of 2: start "
      "them together, or set another MASTER_PORT");
  EXPECT_EQ(
      meet({launchOf(0, 3, port), launchOf(1, 3, port), launchOf(1, 3, port)},
           milliseconds(2000))[0]
          .message(),
      "two processes say that they are rank 1: give each its own RANK");
  Launch lost = launchOf(1, 2, 0);
  EXPECT_EQ(connectRanks(lost, milliseconds(100)).message(),
            "rank 1 of 2, started by RANK and WORLD_SIZE, but the address of "
            "rank 0 is unknown: set MASTER_ADDR and MASTER_PORT, or start with "
            "an MPI (mpirun, srun --mpi=pmix)");
}

TEST(TcpTransport, EndsTheWorldAtOnceWhenARankDies) {
  Reports reports;
  auto links = socketPairs(3);
  Transports two;
  two.push_back(overSockets(std::move(links[0]), 0, false).take());
  two.push_back(overSockets(std::move(links[1]), 1, false).take());
  links[2].clear();
  runRanks(std::move(two),
           {.timeout = std::chrono::seconds(60), .report = reports.sink()},
           [](World &world) {
             std::int32_t value = 0;
             Channel &channel = **world.open(0, Group::world(3));
             EXPECT_FALSE(channel
                              .run(Collective::allReduce(
                                  ElementType::i32, Reduction::sum, &value, 1))
                              .ok());
           });
  EXPECT_THAT(reports.text(),
              testing::AnyOf(
                  HasSubstr("in all_reduce #0 i32[1] of group {0,1,2}: rank 2 "
                            "closed its connection: it ended or died"),
                  HasSubstr("in all_reduce #0 i32[1] of group {0,1,2}: rank 2 "
                            "cannot be reached: Broken pipe")));
}

/// What rank 0 of two says when rank 1 sends these bytes.
std::string saidOf(std::span<const std::byte> bytes) {
  auto links = socketPairs(2);
  auto transport = overSockets(std::move(links[0]), 0, false).take();
  EXPECT_EQ(::send(links[1][0].get(), bytes.data(), bytes.size(), 0),
            static_cast<ssize_t>(bytes.size()));
  ::shutdown(links[1][0].get(), SHUT_WR);
  std::vector<std::byte> to(100'000);
  const Request request = *transport->receive(1, 5, to);
  for (;;)
    if (const auto through = transport->test(request);
        !through.ok() || *through)
      return through.message();
}

TEST(TcpTransport, RefusesWhatIsNoMessage) {
  // A frame is magic, kind, tag, number and a 64-bit length.
  const auto frame = [](std::uint32_t magic, std::uint32_t kind,
                        std::uint32_t number, std::uint64_t bytes) {
    const std::array<std::uint32_t, 6> words = {
        magic,
        kind,
        5,
        number,
        static_cast<std::uint32_t>(bytes),
        static_cast<std::uint32_t>(bytes >> 32)};
    return saidOf(std::as_bytes(std::span(words)));
  };
  constexpr std::uint32_t magic = 0x70637374;
  const char *nonsense =
      "rank 1 sent something that is not a message of this job";
  EXPECT_EQ(frame(magic + 1, 0, 0, 0), nonsense);
  EXPECT_EQ(frame(magic, 4, 0, 0), nonsense);
  EXPECT_EQ(frame(magic, 0, 0, std::uint64_t(1) << 60), nonsense);
  EXPECT_EQ(frame(magic, 2, 77, 0), nonsense); // demands what nobody sends
  EXPECT_EQ(frame(magic, 2, 0, 0), nonsense);  // demands a receive
  EXPECT_EQ(frame(magic, 3, 0, 8), nonsense);  // of another length
  EXPECT_EQ(frame(magic, 3, 77, 100'000), nonsense);
  EXPECT_EQ(frame(magic, 1, 0, 8),
            "rank 1 sends 8 bytes where rank 0 expects 100000");
  EXPECT_EQ(frame(magic, 0, 0, 8),
            "rank 1 closed its connection: it ended or died");
}

} // namespace
} // namespace tessera::comm
