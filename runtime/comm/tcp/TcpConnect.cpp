#include "runtime/comm/tcp/TcpConnect.h"

#include "runtime/comm/Watchdog.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <random>
#include <sys/socket.h>
#include <thread>

namespace tessera::comm {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kMagic = 0x31'70'63'74'73'73'74'31;
/// How long a new connection may take to send its greeting.
constexpr milliseconds kGreeting{2000};
/// Between two attempts to reach a rank that may not listen yet.
constexpr milliseconds kRetry{50};

using Token = std::array<std::uint64_t, 2>;

/// A rank's greeting, sent as these bytes.
struct Hello {
  std::uint64_t magic = kMagic;
  std::uint32_t size = 0, rank = 0;
  std::uint32_t port = 0; ///< to rank 0: where this rank listens
  std::uint32_t unused = 0;
  Token token{}; ///< to other ranks
};

/// Where a rank listens; as an IPv6 address, IPv4 mapped.
struct Place {
  std::array<std::uint8_t, 16> address{};
  std::uint32_t port = 0, unused = 0;
};

std::string systemError() { return std::strerror(errno); }

template <typename T>
bool readAll(int fd, std::span<T> values, Clock::time_point deadline) {
  return readBytes(fd, std::as_writable_bytes(values), deadline);
}

template <typename T>
bool writeAll(int fd, std::span<const T> values, Clock::time_point deadline) {
  return writeBytes(fd, std::as_bytes(values), deadline);
}

class Meeting {
public:
  Meeting(const Launch &launch, milliseconds timeout)
      : launch(launch), timeout(timeout), deadline(Clock::now() + timeout),
        links(static_cast<std::size_t>(launch.size)) {}

  StatusOr<std::vector<Socket>> hold() {
    TESSERA_RETURN_IF_ERROR(listen());
    TESSERA_RETURN_IF_ERROR(launch.rank == 0 ? introduce() : getIntroduced());
    return std::move(links);
  }

private:
  Status listen();
  Status introduce();
  Status getIntroduced();
  Status acceptUntilComplete(bool isIntroduction);
  StatusOr<Socket> connect(const addrinfo &address, int rank) const;
  StatusOr<Socket> connectToMaster() const;
  StatusOr<Socket> connectToPlace(int rank) const;
  Hello hello() const {
    Hello hello;
    hello.size = static_cast<std::uint32_t>(launch.size);
    hello.rank = static_cast<std::uint32_t>(launch.rank);
    hello.port = port;
    hello.token = token;
    return hello;
  }
  std::string time() const {
    return fmt::format("{:.3g} s",
                       std::chrono::duration<double>(timeout).count());
  }

  const Launch &launch;
  milliseconds timeout;
  Clock::time_point deadline;
  std::vector<Socket> links;
  std::vector<Place> addresses;
  Socket listener;
  std::uint32_t port = 0;
  Token token{};
};

Status Meeting::listen() {
  const int wanted = launch.rank == 0 ? launch.masterPort : 0;
  // One socket for both families, or IPv4 where there is no IPv6.
  const int family = [&] {
    listener = Socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return listener ? AF_INET6 : AF_INET;
  }();
  if (!listener)
    listener = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1, no = 0;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in6 six{};
  sockaddr_in four{};
  six.sin6_family = AF_INET6;
  four.sin_family = AF_INET;
  six.sin6_port = four.sin_port = htons(static_cast<std::uint16_t>(wanted));
  if (family == AF_INET6)
    ::setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  auto *address = family == AF_INET6 ? reinterpret_cast<sockaddr *>(&six)
                                     : reinterpret_cast<sockaddr *>(&four);
  socklen_t length = family == AF_INET6 ? sizeof(six) : sizeof(four);
  if (::bind(listener.get(), address, length) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0 ||
      ::getsockname(listener.get(), address, &length) != 0)
    return Status::error("rank {} cannot listen on port {}: {}: set "
                         "MASTER_PORT to a free one",
                         launch.rank, wanted, systemError());
  port = ntohs(family == AF_INET6 ? six.sin6_port : four.sin_port);
  return Status::success();
}

/// Whom a socket is connected to.
Place placeOf(int fd, std::uint32_t port) {
  Place place;
  place.port = port;
  sockaddr_storage from{};
  socklen_t length = sizeof(from);
  ::getpeername(fd, reinterpret_cast<sockaddr *>(&from), &length);
  if (from.ss_family == AF_INET6) {
    std::memcpy(place.address.data(),
                &reinterpret_cast<sockaddr_in6 &>(from).sin6_addr, 16);
  } else {
    place.address[10] = place.address[11] = 0xff;
    std::memcpy(place.address.data() + 12,
                &reinterpret_cast<sockaddr_in &>(from).sin_addr, 4);
  }
  return place;
}

/// Accepts connections until every expected rank has connected: all others at
/// rank 0, later ranks at the rest. Rejects all other connections.
Status Meeting::acceptUntilComplete(bool isIntroduction) {
  for (;;) {
    std::vector<int> missing;
    for (int rank = launch.rank + 1; rank < launch.size; ++rank)
      if (!links[static_cast<std::size_t>(rank)])
        missing.push_back(rank);
    if (missing.empty())
      return Status::success();
    if (!await(listener.get(), POLLIN, deadline))
      return Status::error("rank {} has waited for {} to come from {}",
                           launch.rank, time(), rankList(missing));
    Socket guest(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Hello theirs;
    if (!guest || !readAll(guest.get(), std::span(&theirs, 1),
                           std::min(deadline, Clock::now() + kGreeting)))
      continue;
    if (theirs.magic != kMagic || (!isIntroduction && theirs.token != token))
      continue;
    if (theirs.size != static_cast<std::uint32_t>(launch.size))
      return Status::error("rank {} belongs to a job of {} ranks, rank {} to "
                           "one of {}: start them together, or set another "
                           "MASTER_PORT",
                           theirs.rank, theirs.size, launch.rank, launch.size);
    if (theirs.rank <= static_cast<std::uint32_t>(launch.rank) ||
        theirs.rank >= theirs.size)
      continue;
    if (links[theirs.rank])
      return Status::error("two processes say that they are rank {}: give each "
                           "its own RANK",
                           theirs.rank);
    if (isIntroduction)
      addresses[theirs.rank] = placeOf(guest.get(), theirs.port);
    links[theirs.rank] = std::move(guest);
  }
}

Status Meeting::introduce() {
  addresses.resize(links.size());
  std::random_device random;
  for (std::uint64_t &part : token)
    part = std::uint64_t(random()) << 32 | random();
  TESSERA_RETURN_IF_ERROR(acceptUntilComplete(true));
  const Hello mine = hello();
  for (int rank = 1; rank < launch.size; ++rank) {
    const int fd = links[static_cast<std::size_t>(rank)].get();
    if (!writeAll(fd, std::span<const Hello>(&mine, 1), deadline) ||
        !writeAll(fd, std::span<const Place>(addresses), deadline))
      return Status::error("rank {} went away while ranks met", rank);
  }
  return Status::success();
}

Status Meeting::getIntroduced() {
  StatusOr<Socket> master = connectToMaster();
  if (!master.ok())
    return master.status();
  const Hello mine = hello();
  Hello theirs;
  addresses.resize(links.size());
  if (!writeAll(master->get(), std::span<const Hello>(&mine, 1), deadline) ||
      !readAll(master->get(), std::span(&theirs, 1), deadline) ||
      theirs.magic != kMagic || theirs.size != mine.size ||
      !readAll(master->get(), std::span(addresses), deadline))
    return Status::error("rank {} got no answer from rank 0 at {} port {}: see "
                         "the output of rank 0",
                         launch.rank, launch.masterAddress, launch.masterPort);
  token = theirs.token;
  links[0] = master.take();
  for (int rank = 1; rank < launch.rank; ++rank) {
    StatusOr<Socket> link = connectToPlace(rank);
    if (!link.ok())
      return link.status();
    const Hello again = hello();
    if (!writeAll(link->get(), std::span<const Hello>(&again, 1), deadline))
      return Status::error("rank {} went away while ranks met", rank);
    links[static_cast<std::size_t>(rank)] = link.take();
  }
  return acceptUntilComplete(false);
}

StatusOr<Socket> Meeting::connect(const addrinfo &address, int rank) const {
  std::string cause;
  do {
    for (const addrinfo *one = &address; one; one = one->ai_next) {
      Socket socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (socket && ::connect(socket.get(), one->ai_addr, one->ai_addrlen) == 0)
        return socket;
      cause = systemError();
    }
    std::this_thread::sleep_for(kRetry);
  } while (Clock::now() < deadline);
  return Status::error("rank {} could not reach rank {} for {}: {}",
                       launch.rank, rank, time(), cause);
}

StatusOr<Socket> Meeting::connectToMaster() const {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int failure =
      ::getaddrinfo(launch.masterAddress.c_str(),
                    std::to_string(launch.masterPort).c_str(), &hints, &found);
  if (failure != 0)
    return Status::error("MASTER_ADDR={} is not a valid address: {}",
                         launch.masterAddress, ::gai_strerror(failure));
  StatusOr<Socket> socket = connect(*found, 0);
  ::freeaddrinfo(found);
  if (socket.ok())
    return socket;
  return Status::error("{} (at {} port {})", socket.message(),
                       launch.masterAddress, launch.masterPort);
}

StatusOr<Socket> Meeting::connectToPlace(int rank) const {
  const Place &place = addresses[static_cast<std::size_t>(rank)];
  sockaddr_in6 six{};
  sockaddr_in four{};
  addrinfo address{};
  const std::array<std::uint8_t, 12> mapped = {0, 0, 0, 0, 0,    0,
                                               0, 0, 0, 0, 0xff, 0xff};
  const auto portBits = htons(static_cast<std::uint16_t>(place.port));
  if (std::memcmp(place.address.data(), mapped.data(), mapped.size()) == 0) {
    four.sin_family = AF_INET;
    four.sin_port = portBits;
    std::memcpy(&four.sin_addr, place.address.data() + 12, 4);
    address.ai_addr = reinterpret_cast<sockaddr *>(&four);
    address.ai_addrlen = sizeof(four);
  } else {
    six.sin6_family = AF_INET6;
    six.sin6_port = portBits;
    std::memcpy(&six.sin6_addr, place.address.data(), 16);
    address.ai_addr = reinterpret_cast<sockaddr *>(&six);
    address.ai_addrlen = sizeof(six);
  }
  address.ai_family = address.ai_addr->sa_family;
  return connect(address, rank);
}

} // namespace

StatusOr<std::vector<Socket>> connectRanks(const Launch &launch,
                                           milliseconds timeout) {
  if (launch.masterAddress.empty() || launch.masterPort == 0)
    return Status::error(
        "{}, but the address of rank 0 is unknown: set MASTER_ADDR "
        "and MASTER_PORT, or start with an MPI (mpirun, srun "
        "--mpi=pmix)",
        launch.describe());
  return Meeting(launch, timeout).hold();
}

} // namespace tessera::comm
