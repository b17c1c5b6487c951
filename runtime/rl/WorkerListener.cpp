#include "runtime/rl/WorkerListener.h"

#include <poll.h>
#include <sys/socket.h>

namespace tessera::rl {

using comm::SocketClock;

/// How often a thread that waits looks whether to stop.
constexpr std::chrono::milliseconds kSlice{100};

StatusOr<std::unique_ptr<WorkerListener>>
WorkerListener::open(ListenOptions options, Joined joined) {
  std::unique_ptr<WorkerListener> listener(
      new WorkerListener(std::move(options), std::move(joined)));
  auto socket = comm::listenAt(listener->options.address);
  if (!socket.ok())
    return socket.status();
  auto bound = comm::localAddress(socket->get());
  if (!bound.ok())
    return bound.status();
  listener->bound = bound.take();
  if (!comm::isLoopback(listener->bound) &&
      listener->options.secret.text.empty())
    return Status::error("other machines can reach {}, which needs a secret; "
                         "set TESSERA_ROLLOUT_SECRET",
                         listener->bound.text());
  listener->socket = socket.take();
  listener->thread = std::thread([raw = listener.get()] { raw->run(); });
  return listener;
}

WorkerListener::~WorkerListener() {
  isOver = true;
  if (thread.joinable())
    thread.join();
}

void WorkerListener::run() {
  while (!isOver) {
    forgetGuests(/*all=*/false);
    if (guests.size() >= kMostGuests) {
      std::this_thread::sleep_for(kSlice);
      continue;
    }
    if (!comm::await(socket.get(), POLLIN, SocketClock::now() + kSlice))
      continue;
    comm::Socket accepted(
        ::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!accepted) { // it has gone already, or the process has too many files
      std::this_thread::sleep_for(kSlice);
      continue;
    }
    auto name = comm::peerAddress(accepted.get());
    if (!name.ok())
      continue;
    Guest &guest = guests.emplace_back();
    guest.socket = std::move(accepted);
    guest.name = name->text();
    guest.thread = std::thread([this, &guest] {
      greet(guest);
      guest.isDone = true;
    });
  }
  forgetGuests(/*all=*/true);
}

void WorkerListener::greet(Guest &guest) {
  const int fd = guest.socket.get();
  const Status greeted =
      greetWorker(fd, options.secret, SocketClock::now() + options.greeting);
  if (isOver)
    return;
  if (!greeted.ok()) {
    options.note(
        fmt::format("refused {}, which {}", guest.name, greeted.message()));
    return;
  }
  comm::detectLoss(fd, kUnreachable);
  std::unique_ptr<Connection> connection;
  {
    std::lock_guard lock(guest.mutex);
    connection = std::make_unique<Connection>(std::move(guest.socket));
  }
  connection->limitSilence(options.silence);
  if (connection->send(pack(options.job)).ok())
    joined(std::move(connection), guest.name);
}

void WorkerListener::forgetGuests(bool all) {
  for (auto guest = guests.begin(); guest != guests.end();) {
    if (!all && !guest->isDone) {
      ++guest;
      continue;
    }
    {
      std::lock_guard lock(guest->mutex);
      if (guest->socket) // its thread may be waiting for the peer
        ::shutdown(guest->socket.get(), SHUT_RDWR);
    }
    guest->thread.join();
    guest = guests.erase(guest);
  }
}

} // namespace tessera::rl
