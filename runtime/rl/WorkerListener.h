// Where rollout workers on other machines come in.
#pragma once
#include "runtime/rl/WorkerHandshake.h"
#include "runtime/rl/WorkerMessages.h"

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <thread>

namespace tessera::rl {

struct ListenOptions {
  comm::TcpAddress address;
  SharedSecret secret;
  WorkerJob job; ///< that every worker is given
  /// For a peer to show that it has the secret.
  std::chrono::milliseconds greeting{10'000};
  /// A worker that sends nothing for so long is given up. It has sent something
  /// every kHeartbeat.
  std::chrono::milliseconds silence{60'000};
  std::function<void(std::string_view)> note; ///< one line for the user
};

constexpr std::chrono::milliseconds kHeartbeat{10'000};
/// For the system to find out that a machine cannot be reached any more.
constexpr std::chrono::seconds kUnreachable{60};

class WorkerListener {
public:
  /// A worker that has the secret and was sent the job, and its address; from
  /// any thread.
  using Joined =
      std::function<void(std::unique_ptr<Connection>, const std::string &)>;

  /// An error if the address cannot be had, or if other machines can reach it
  /// and no secret is set.
  static StatusOr<std::unique_ptr<WorkerListener>> open(ListenOptions options,
                                                        Joined joined);
  /// Nothing joins afterwards.
  ~WorkerListener();

  /// With the port that was taken for port 0.
  const comm::TcpAddress &address() const { return bound; }

private:
  /// A peer that has not shown yet that it has the secret.
  struct Guest {
    std::mutex mutex;
    comm::Socket socket; ///< taken, or shut down, under the mutex
    std::string name;
    std::atomic<bool> isDone = false;
    std::thread thread;
  };
  /// More wait until one of these has.
  static constexpr std::size_t kMostGuests = 16;

  WorkerListener(ListenOptions options, Joined joined)
      : options(std::move(options)), joined(std::move(joined)) {}
  void run();
  void greet(Guest &guest);
  void forgetGuests(bool all);

  const ListenOptions options;
  const Joined joined;
  comm::Socket socket;
  comm::TcpAddress bound;
  std::atomic<bool> isOver = false;
  std::list<Guest> guests; ///< of the thread below
  std::thread thread;
};

} // namespace tessera::rl
