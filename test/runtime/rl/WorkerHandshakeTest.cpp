// Only who knows the secret is let in.
#include "runtime/rl/WorkerHandshake.h"
#include "runtime/support/SplitMix64.h"
#include "test/runtime/rl/FakeSecret.h"

#include <gtest/gtest.h>

#include <thread>

#include <sys/socket.h>

namespace tessera::rl {
namespace {

using comm::Socket;
using comm::SocketClock;
using testing::secretOf;

constexpr std::size_t kGreeting = 48; // bytes

SocketClock::time_point soon(int milliseconds = 10'000) {
  return SocketClock::now() + std::chrono::milliseconds(milliseconds);
}

struct Ends {
  Ends() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    learner = Socket(ends[0]);
    worker = Socket(ends[1]);
  }
  Socket learner, worker;
};

/// What both sides say to each other.
std::pair<Status, Refusal> meet(const std::string &learner,
                                const std::string &worker) {
  Ends ends;
  Status status = Status::success();
  std::thread thread([&] {
    status = greetWorker(ends.learner.get(), secretOf(learner), soon());
  });
  Refusal refusal = greetLearner(ends.worker.get(), secretOf(worker), soon());
  thread.join();
  return {status, refusal};
}

/// What the learner says of a peer that sends these bytes, and closes its end.
std::string said(std::span<const std::byte> bytes) {
  Ends ends;
  EXPECT_TRUE(comm::writeBytes(ends.worker.get(), bytes, soon()));
  ::shutdown(ends.worker.get(), SHUT_WR);
  return greetWorker(ends.learner.get(), secretOf("secret"), soon()).message();
}

TEST(WorkerHandshakeTest, OneSecret) {
  for (const std::string &secret :
       {std::string(), std::string("secret"), std::string(200, 'x')}) {
    const auto [status, refusal] = meet(secret, secret);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(refusal.status.ok()) << refusal.status.message();
  }
}

TEST(WorkerHandshakeTest, AnotherSecret) {
  for (const char *worker : {"", "secreT", "secrets"}) {
    const auto [status, refusal] = meet("secret", worker);
    EXPECT_EQ(status.message(), "does not know the secret");
    EXPECT_EQ(refusal.status.message(),
              "has another secret; give both the same");
    EXPECT_TRUE(refusal.isFinal);
  }
}

TEST(WorkerHandshakeTest, OtherProgramsAreToldApart) {
  const std::string text = "GET / HTTP/1.1\r\nHost: 127.0.0.1:7000\r\nAccept: "
                           "*/*\r\nUser-Agent: a browser\r\n\r\n";
  EXPECT_EQ(said(std::as_bytes(std::span(text))), "is not a rollout worker");
  EXPECT_EQ(said({}), "said nothing");
  EXPECT_EQ(said(std::as_bytes(std::span(text)).first(20)), "said nothing");
  SplitMix64 random(7);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::byte> bytes(random() % 200);
    for (std::byte &byte : bytes)
      byte = std::byte(random());
    EXPECT_FALSE(said(bytes).empty());
  }
}

TEST(WorkerHandshakeTest, APeerThatSaysNothingIsNotWaitedFor) {
  Ends ends;
  EXPECT_EQ(
      greetWorker(ends.learner.get(), secretOf("secret"), soon(30)).message(),
      "said nothing");
  const Refusal refusal =
      greetLearner(ends.worker.get(), secretOf("secret"), soon(30));
  // It was greeted above, and its signature is not answered.
  EXPECT_EQ(refusal.status.message(), "went away");
  EXPECT_FALSE(refusal.isFinal);
}

TEST(WorkerHandshakeTest, WhatTheLearnerSaidIsNoSignature) {
  Ends ends;
  std::thread peer([fd = ends.worker.get()] {
    std::byte bytes[kGreeting];
    ASSERT_TRUE(comm::readBytes(fd, bytes, soon()));
    ASSERT_TRUE(comm::writeBytes(fd, bytes, soon()));
  });
  EXPECT_EQ(
      greetWorker(ends.learner.get(), secretOf("secret"), soon(2000)).message(),
      "is not a rollout worker");
  peer.join();
}

TEST(WorkerHandshakeTest, WhatAWorkerOnceSaidIsNoSignature) {
  Ends first, second;
  // What a worker with the secret sends: its greeting and its signature.
  std::thread worker([fd = first.worker.get()] {
    (void)greetLearner(fd, secretOf("secret"), soon());
  });
  std::byte learner[kGreeting] = {}, heard[kGreeting + 32];
  {
    Ends other; // another learner's greeting
    (void)greetWorker(other.learner.get(), secretOf("secret"), soon(1));
    ASSERT_TRUE(comm::readBytes(other.worker.get(), learner, soon()));
  }
  ASSERT_TRUE(comm::writeBytes(first.learner.get(), learner, soon()));
  ASSERT_TRUE(comm::readBytes(first.learner.get(), heard, soon()));
  first.learner = Socket();
  worker.join();
  ASSERT_TRUE(comm::writeBytes(second.worker.get(), heard, soon()));
  EXPECT_EQ(
      greetWorker(second.learner.get(), secretOf("secret"), soon()).message(),
      "does not know the secret");
}

} // namespace
} // namespace tessera::rl
