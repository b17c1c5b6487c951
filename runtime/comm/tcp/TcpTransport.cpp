#include "runtime/comm/tcp/TcpTransport.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <list>
#include <map>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <unordered_map>

namespace tessera::comm {
namespace {

/// Longer messages are announced, and sent when the other side expects them:
/// what no receive expects yet is kept in memory.
constexpr std::size_t kEagerBytes = 64 << 10;

/// How long the others may take to finish after this rank.
constexpr std::chrono::seconds kFarewell{10};

/// Before every message's bytes, and alone.
struct Frame {
  enum class Kind : std::uint32_t {
    whole,    ///< `bytes` follow
    announce, ///< `bytes` would follow: of the sender's number
    demand,   ///< the answer: let them come
    data,     ///< they do
  };
  static constexpr std::uint32_t kMagic = 0x70'63'73'74;
  std::uint32_t magic = kMagic;
  Kind kind = Kind::whole;
  std::int32_t tag = 0;
  std::uint32_t number = 0; ///< the sender's request
  std::uint64_t bytes = 0;
};

struct Message {
  int peer = 0;
  std::span<const std::byte> from = {};
  std::span<std::byte> to = {};
  std::uint64_t received = 0;
  bool isThrough = false;
  bool isCancelled = false;
};

/// What came before it was expected.
struct Arrival {
  Frame frame;
  std::vector<std::byte> bytes; ///< of a whole one
};

struct Peer {
  Socket socket;
  bool isClosed = false;
  std::string trouble; ///< why, if not in order

  struct Outgoing {
    Frame frame;
    std::span<const std::byte> bytes;
    std::size_t sent = 0; ///< of both
    std::optional<Request> request;
  };
  std::deque<Outgoing> outgoing;

  Frame frame;             ///< that is being read
  std::size_t read = 0;    ///< of frame and bytes
  std::span<std::byte> to; ///< where its bytes go
  std::optional<Request> into;
  std::vector<std::byte> kept;

  struct Line {
    std::deque<Request> expected;
    std::deque<Arrival> arrived;
  };
  std::map<int, Line> lines; ///< by tag
};

class TcpTransport : public Transport {
public:
  TcpTransport(std::vector<Socket> links, int rank, bool isProcess)
      : myRank(rank), isProcess(isProcess), peers(links.size()) {
    for (std::size_t i = 0; i < links.size(); ++i)
      peers[i].socket = std::move(links[i]);
  }

  Status prepare() {
    for (Peer &peer : peers) {
      if (!peer.socket)
        continue;
      const int fd = peer.socket.get(), yes = 1;
      // Not of a socket pair.
      (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
      const int flags = ::fcntl(fd, F_GETFL);
      if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return Status::error("cannot prepare a socket: {}",
                             std::strerror(errno));
      polled.push_back({fd, POLLIN, 0});
      polledRanks.push_back(static_cast<std::size_t>(&peer - peers.data()));
    }
    return Status::success();
  }

  int rank() const override { return myRank; }
  int size() const override { return static_cast<int>(peers.size()); }
  StatusOr<Request> send(int to, int tag,
                         std::span<const std::byte> bytes) override;
  StatusOr<Request> receive(int from, int tag,
                            std::span<std::byte> bytes) override;
  StatusOr<bool> test(Request request) override;
  void cancel(Request request) override;
  StatusOr<std::optional<int>> probe(int tag) override;
  Status finish() override;
  void abort(int exitCode) override {
    if (isProcess)
      ::_exit(exitCode);
  }

private:
  Peer &peer(int rank) { return peers[static_cast<std::size_t>(rank)]; }
  Request remember(Message message) {
    messages.emplace(next, message);
    return next++;
  }
  void progress();
  void write(Peer &peer);
  void read(int rank);
  bool beginBytes(int rank); // false: the peer broke the protocol
  void endBytes(int rank);
  void match(int rank, Peer::Line &line);
  void close(Peer &peer, std::string trouble);

  int myRank;
  bool isProcess;
  std::vector<Peer> peers;
  std::vector<pollfd> polled;
  std::vector<std::size_t> polledRanks;
  std::unordered_map<Request, Message> messages;
  Request next = 0;
};

StatusOr<Request> TcpTransport::send(int to, int tag,
                                     std::span<const std::byte> bytes) {
  const Request request = remember({.peer = to, .from = bytes});
  const bool isWhole = bytes.size() <= kEagerBytes;
  Peer::Outgoing &outgoing = peer(to).outgoing.emplace_back();
  outgoing.frame.kind = isWhole ? Frame::Kind::whole : Frame::Kind::announce;
  outgoing.frame.tag = tag;
  outgoing.frame.number = request;
  outgoing.frame.bytes = bytes.size();
  if (isWhole) {
    outgoing.bytes = bytes;
    outgoing.request = request;
  }
  write(peer(to));
  return request;
}

StatusOr<Request> TcpTransport::receive(int from, int tag,
                                        std::span<std::byte> bytes) {
  const Request request = remember({.peer = from, .to = bytes});
  Peer::Line &line = peer(from).lines[tag];
  line.expected.push_back(request);
  match(from, line);
  return request;
}

StatusOr<bool> TcpTransport::test(Request request) {
  if (!messages.at(request).isThrough)
    progress();
  const auto found = messages.find(request);
  const int other = found->second.peer;
  if (found->second.isThrough) {
    messages.erase(found);
    return true;
  }
  if (!peer(other).isClosed)
    return false;
  messages.erase(found);
  return Status::error("rank {} {}", other, peer(other).trouble);
}

void TcpTransport::cancel(Request request) {
  const auto found = messages.find(request);
  if (found->second.isThrough) {
    messages.erase(found);
    return;
  }
  found->second.isCancelled = true;
  // Its bytes may be coming just now: to nowhere.
  Peer &from = peer(found->second.peer);
  if (from.into != request)
    return;
  from.kept.resize(from.to.size());
  from.to = from.kept;
}

StatusOr<std::optional<int>> TcpTransport::probe(int tag) {
  progress();
  for (std::size_t rank = 0; rank < peers.size(); ++rank)
    if (const auto line = peers[rank].lines.find(tag);
        line != peers[rank].lines.end() && !line->second.arrived.empty())
      return std::optional(static_cast<int>(rank));
  return std::optional<int>();
}

/// Says that nothing more comes, and waits until all others have said so:
/// closing a socket with something unread in it takes back what was sent.
Status TcpTransport::finish() {
  for (Peer &peer : peers)
    if (peer.socket && !peer.isClosed)
      ::shutdown(peer.socket.get(), SHUT_WR);
  const auto until = std::chrono::steady_clock::now() + kFarewell;
  const auto isOpen = [](const Peer &peer) {
    return peer.socket && !peer.isClosed;
  };
  while (std::any_of(peers.begin(), peers.end(), isOpen) &&
         std::chrono::steady_clock::now() < until) {
    progress();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return Status::success();
}

void TcpTransport::close(Peer &peer, std::string trouble) {
  if (peer.isClosed)
    return;
  peer.isClosed = true;
  peer.trouble = std::move(trouble);
  peer.outgoing.clear();
}

void TcpTransport::progress() {
  for (std::size_t i = 0; i < polled.size(); ++i) {
    Peer &peer = peers[polledRanks[i]];
    write(peer);
    polled[i].fd = peer.isClosed ? -1 : peer.socket.get();
  }
  if (::poll(polled.data(), polled.size(), 0) <= 0)
    return;
  for (std::size_t i = 0; i < polled.size(); ++i)
    if (polled[i].revents != 0 && polled[i].fd >= 0)
      read(static_cast<int>(polledRanks[i]));
}

void TcpTransport::write(Peer &peer) {
  while (!peer.isClosed && !peer.outgoing.empty()) {
    Peer::Outgoing &out = peer.outgoing.front();
    const auto frame = std::as_bytes(std::span(&out.frame, 1));
    iovec parts[2];
    int count = 0;
    const auto add = [&](std::span<const std::byte> bytes) {
      if (!bytes.empty())
        parts[count++] = {const_cast<std::byte *>(bytes.data()), bytes.size()};
    };
    if (out.sent < frame.size())
      add(frame.subspan(out.sent));
    add(out.bytes.subspan(std::max(out.sent, frame.size()) - frame.size()));
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = static_cast<std::size_t>(count);
    const ssize_t sent =
        ::sendmsg(peer.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno != EAGAIN && errno != EINTR)
        close(peer, fmt::format("cannot be reached: {}", std::strerror(errno)));
      return;
    }
    out.sent += static_cast<std::size_t>(sent);
    if (out.sent < frame.size() + out.bytes.size())
      return;
    if (out.request) {
      Message &done = messages[*out.request];
      done.isThrough = true;
      if (done.isCancelled)
        messages.erase(*out.request);
    }
    peer.outgoing.pop_front();
  }
}

void TcpTransport::read(int rank) {
  Peer &peer = this->peer(rank);
  const auto frame = std::as_writable_bytes(std::span(&peer.frame, 1));
  while (!peer.isClosed) {
    std::span<std::byte> to = peer.read < frame.size()
                                  ? frame.subspan(peer.read)
                                  : peer.to.subspan(peer.read - frame.size());
    const ssize_t got =
        ::recv(peer.socket.get(), to.data(), to.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
      return;
    if (got <= 0)
      return close(
          peer, got == 0 ? "closed its connection: it ended or died"
                         : fmt::format("is cut off: {}", std::strerror(errno)));
    peer.read += static_cast<std::size_t>(got);
    if (peer.read == frame.size() && !beginBytes(rank))
      return close(peer, "sent something that is not a message of this job");
    if (peer.read == frame.size() + peer.to.size() && peer.read >= frame.size())
      endBytes(rank);
  }
}

bool TcpTransport::beginBytes(int rank) {
  Peer &peer = this->peer(rank);
  const Frame &frame = peer.frame;
  peer.to = {};
  peer.into.reset();
  if (frame.magic != Frame::kMagic)
    return false;
  switch (frame.kind) {
  case Frame::Kind::whole:
    if (frame.bytes > kEagerBytes)
      return false;
    peer.kept.resize(frame.bytes);
    peer.to = peer.kept;
    return true;
  case Frame::Kind::announce:
    return true;
  case Frame::Kind::demand: {
    const auto found = messages.find(frame.number);
    return found != messages.end() && found->second.peer == rank &&
           !found->second.from.empty();
  }
  case Frame::Kind::data: {
    // The number is ours: of the receive that demanded it.
    const auto found = messages.find(frame.number);
    if (found == messages.end() || found->second.peer != rank ||
        found->second.to.size() != frame.bytes)
      return false;
    peer.into = frame.number;
    peer.to = found->second.to;
    if (found->second.isCancelled) {
      peer.kept.resize(frame.bytes);
      peer.to = peer.kept;
    }
    return true;
  }
  }
  return false;
}

void TcpTransport::endBytes(int rank) {
  Peer &peer = this->peer(rank);
  peer.read = 0;
  const Frame frame = peer.frame;
  if (frame.kind == Frame::Kind::demand) {
    const Message &message = messages[frame.number];
    Peer::Outgoing &outgoing = peer.outgoing.emplace_back();
    outgoing.frame.kind = Frame::Kind::data;
    outgoing.frame.number = static_cast<std::uint32_t>(frame.tag);
    outgoing.frame.bytes = message.from.size();
    outgoing.bytes = message.from;
    outgoing.request = frame.number;
    return;
  }
  if (frame.kind == Frame::Kind::data) {
    Message &message = messages[frame.number];
    message.isThrough = true;
    if (message.isCancelled)
      messages.erase(frame.number);
    return;
  }
  Peer::Line &line = peer.lines[frame.tag];
  line.arrived.push_back({frame, std::exchange(peer.kept, {})});
  match(rank, line);
}

void TcpTransport::match(int rank, Peer::Line &line) {
  Peer &peer = this->peer(rank);
  while (!line.expected.empty() && !line.arrived.empty()) {
    const Request request = line.expected.front();
    line.expected.pop_front();
    const auto found = messages.find(request);
    if (found->second.isCancelled) {
      messages.erase(found);
      continue;
    }
    Message &message = found->second;
    const Arrival arrival = std::move(line.arrived.front());
    line.arrived.pop_front();
    if (arrival.frame.bytes != message.to.size())
      return close(peer,
                   fmt::format("sends {} bytes where rank {} expects {}",
                               arrival.frame.bytes, myRank, message.to.size()));
    if (arrival.frame.kind == Frame::Kind::whole) {
      if (!arrival.bytes.empty())
        std::memcpy(message.to.data(), arrival.bytes.data(),
                    arrival.bytes.size());
      message.isThrough = true;
      continue;
    }
    Peer::Outgoing &demand = peer.outgoing.emplace_back();
    demand.frame.kind = Frame::Kind::demand;
    demand.frame.number = arrival.frame.number;
    demand.frame.tag = static_cast<std::int32_t>(request); // what data names
  }
}

} // namespace

StatusOr<std::unique_ptr<Transport>> overSockets(std::vector<Socket> links,
                                                 int rank, bool isProcess) {
  auto transport =
      std::make_unique<TcpTransport>(std::move(links), rank, isProcess);
  TESSERA_RETURN_IF_ERROR(transport->prepare());
  return std::unique_ptr<Transport>(std::move(transport));
}

StatusOr<std::unique_ptr<Transport>>
joinTcp(const Launch &launch, std::chrono::milliseconds timeout) {
  StatusOr<std::vector<Socket>> links = connectRanks(launch, timeout);
  if (!links.ok())
    return links.status();
  return overSockets(links.take(), launch.rank, /*isProcess=*/true);
}

} // namespace tessera::comm
