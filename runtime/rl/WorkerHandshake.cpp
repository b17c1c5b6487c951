#include "runtime/rl/WorkerHandshake.h"

#include <algorithm>
#include <vector>

#include <sys/random.h>

namespace tessera::rl {
namespace {

constexpr uint64_t kMagic = 0x7265'6b72'6f77'7374; // "tsworker"
constexpr uint32_t kProtocol = 1;

using Number = std::array<std::byte, 32>;
enum class Role : uint32_t { learner, worker };
enum class Verdict : uint32_t { welcome, otherSecret };

// Sent as these bytes.
struct Greeting {
  uint64_t magic = kMagic;
  uint32_t protocol = kProtocol;
  Role role = Role::learner;
  Number number{};
};
struct Answer {
  Verdict verdict = Verdict::welcome;
  uint32_t unused = 0;
  Number signature{};
};

template <typename T> std::span<const std::byte> bytesOf(const T &value) {
  return std::as_bytes(std::span(&value, 1));
}
template <typename T>
bool read(int fd, T &value, comm::SocketClock::time_point deadline) {
  return comm::readBytes(fd, std::as_writable_bytes(std::span(&value, 1)),
                         deadline);
}

StatusOr<Greeting> greetingOf(Role role) {
  Greeting greeting;
  greeting.role = role;
  if (::getentropy(greeting.number.data(), greeting.number.size()) != 0)
    return Status::error("the system has no random numbers");
  return greeting;
}

/// Both sides find out, and none answers.
Status checkProtocol(const Greeting &theirs) {
  if (theirs.protocol == kProtocol)
    return Status::success();
  return Status::error("speaks protocol {}, and this program {}; run one "
                       "version of tessera on both",
                       theirs.protocol, kProtocol);
}

/// By which a side shows that it knows the secret. The role is in it, so that
/// no side can send back what it was sent.
Number signatureOf(Role role, const SharedSecret &secret,
                   const Greeting &learner, const Greeting &worker) {
  std::vector<std::byte> message;
  for (const auto &part : {bytesOf(role), bytesOf(learner), bytesOf(worker)})
    message.insert(message.end(), part.begin(), part.end());
  return hmac(secret, message);
}

/// In a time that does not depend on where they differ.
bool areEqual(const Number &a, const Number &b) {
  std::byte difference{};
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= a[i] ^ b[i];
  return difference == std::byte{};
}

} // namespace

std::array<std::byte, 32> hmac(const SharedSecret &secret,
                               std::span<const std::byte> message) {
  constexpr std::size_t kBlock = 64; // of SHA-256
  std::array<std::byte, kBlock> key{};
  const auto text = std::as_bytes(std::span(secret.text));
  if (text.size() > kBlock)
    std::ranges::copy(secret.hash(text), key.begin());
  else
    std::ranges::copy(text, key.begin());
  const auto padded = [&](std::byte pad, std::span<const std::byte> rest) {
    std::vector<std::byte> bytes;
    bytes.reserve(key.size() + rest.size());
    for (std::byte each : key)
      bytes.push_back(each ^ pad);
    bytes.insert(bytes.end(), rest.begin(), rest.end());
    return secret.hash(bytes);
  };
  return padded(std::byte(0x5c), padded(std::byte(0x36), message));
}

Status greetWorker(int fd, const SharedSecret &secret,
                   comm::SocketClock::time_point deadline) {
  auto ours = greetingOf(Role::learner);
  if (!ours.ok())
    return ours.status();
  Greeting theirs;
  Number signature{};
  const auto answer = [&](Verdict verdict) {
    Answer answer;
    answer.verdict = verdict;
    if (verdict == Verdict::welcome)
      answer.signature = signatureOf(Role::learner, secret, *ours, theirs);
    return comm::writeBytes(fd, bytesOf(answer), deadline);
  };
  if (!comm::writeBytes(fd, bytesOf(*ours), deadline) ||
      !read(fd, theirs, deadline))
    return Status::error("said nothing");
  if (theirs.magic != kMagic || theirs.role != Role::worker)
    return Status::error("is not a rollout worker");
  TESSERA_RETURN_IF_ERROR(checkProtocol(theirs));
  if (!read(fd, signature, deadline))
    return Status::error("went away");
  if (!areEqual(signature, signatureOf(Role::worker, secret, *ours, theirs))) {
    (void)answer(Verdict::otherSecret);
    return Status::error("does not know the secret");
  }
  return answer(Verdict::welcome) ? Status::success()
                                  : Status::error("went away");
}

Refusal greetLearner(int fd, const SharedSecret &secret,
                     comm::SocketClock::time_point deadline) {
  auto ours = greetingOf(Role::worker);
  if (!ours.ok())
    return {ours.status(), true};
  Greeting theirs;
  Answer answer;
  if (!comm::writeBytes(fd, bytesOf(*ours), deadline) ||
      !read(fd, theirs, deadline))
    return {Status::error("said nothing"), false};
  if (theirs.magic != kMagic || theirs.role != Role::learner)
    return {Status::error("is not a learner"), true};
  if (Status status = checkProtocol(theirs); !status.ok())
    return {status, true};
  const Number signature = signatureOf(Role::worker, secret, theirs, *ours);
  if (!comm::writeBytes(fd, bytesOf(signature), deadline) ||
      !read(fd, answer, deadline))
    return {Status::error("went away"), false};
  if (answer.verdict != Verdict::welcome ||
      !areEqual(answer.signature,
                signatureOf(Role::learner, secret, theirs, *ours)))
    return {Status::error("has another secret; give both the same"), true};
  return {};
}

} // namespace tessera::rl
