// How a learner and a worker on another machine find out that they belong
// together, before any message of theirs is read. Both say at once who they
// are, and draw a number; then each shows that it knows the secret, by a hash
// (HMAC, RFC 2104) of it with both numbers. The secret itself is not sent, and
// what is sent later is neither encrypted nor signed.
#pragma once
#include "runtime/comm/tcp/TcpSocket.h"

#include <array>
#include <functional>

namespace tessera::rl {

/// Of any bytes: SHA-256.
using Sha256 =
    std::function<std::array<std::byte, 32>(std::span<const std::byte>)>;

struct SharedSecret {
  std::string text; ///< empty: none, which only this machine may connect to
  Sha256 hash;
};

/// HMAC of the message, for a secret of any length.
std::array<std::byte, 32> hmac(const SharedSecret &secret,
                               std::span<const std::byte> message);

/// The learner's side. What the worker may do wrong, for a message that begins
/// with its address: "is not a rollout worker".
Status greetWorker(int fd, const SharedSecret &secret,
                   comm::SocketClock::time_point deadline);

/// The worker's side. Whether trying again may help.
struct Refusal {
  Status status = Status::success();
  bool isFinal = false;
};
Refusal greetLearner(int fd, const SharedSecret &secret,
                     comm::SocketClock::time_point deadline);

} // namespace tessera::rl
