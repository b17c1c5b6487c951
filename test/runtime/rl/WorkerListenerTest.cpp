// Workers over TCP: they join and leave in the midst of a run, and whatever
// else comes to the port does no harm.
#include "runtime/rl/WorkerListener.h"
#include "runtime/rl/RolloutWorker.h"
#include "test/runtime/rl/FakeSecret.h"
#include "test/runtime/rl/FakeWorkers.h"

#include <cmath>

#include <gtest/gtest.h>

namespace tessera::rl {
namespace {

using comm::SocketClock;
using testing::expectEqual;
using testing::requestOf;
using testing::secretOf;

constexpr const char *kSecret = "a secret of the test";

comm::TcpAddress here(int port = 0) { return {"127.0.0.1", port}; }

/// A worker that connects, on a thread.
class RemoteWorker {
public:
  RemoteWorker(const comm::TcpAddress &address,
               std::vector<StateTensor> tensors)
      : weights(std::move(tensors)) {
    auto socket = comm::connectTo(address);
    EXPECT_TRUE(socket.ok()) << socket.message();
    const Refusal refusal =
        greetLearner(socket->get(), secretOf(kSecret),
                     SocketClock::now() + std::chrono::seconds(10));
    EXPECT_TRUE(refusal.status.ok()) << refusal.status.message();
    connection.emplace(socket.take());
    thread = std::thread([this] { run(); });
  }
  explicit RemoteWorker(const comm::TcpAddress &address)
      : RemoteWorker(address, testing::parameters()) {}
  ~RemoteWorker() { join(); }
  void join() {
    if (thread.joinable())
      thread.join();
  }
  void end() { connection->shutDown(); }

  std::optional<WorkerJob> job;
  Status status = Status::success();
  std::optional<WorkerEnd> ending;
  testing::FakeModel model{testing::shapeOfModel()};

private:
  void run() {
    auto message = connection->receive(1 << 20);
    if (!message.ok() || !*message)
      return;
    auto unpacked = unpackJob((*message)->payload);
    ASSERT_TRUE(unpacked.ok()) << unpacked.message();
    job = unpacked.take();
    auto end = runRolloutWorker(*connection, model, weights);
    status = end.status();
    if (end.ok())
      ending = *end;
    connection->shutDown();
  }
  HostWeights weights;
  std::optional<Connection> connection;
  std::thread thread;
};

class WorkerListenerTest : public testing::SamplerTest {
protected:
  void SetUp() override {
    sampler = std::make_unique<WorkerSampler>(
        testing::shapeOfModel().vocab, uint64_t(1) << 30,
        [this](std::string_view line) { take(line); });
  }
  ListenOptions options() {
    ListenOptions options;
    options.address = here();
    options.secret = secretOf(kSecret);
    options.job = {"config", "recipe", {"a=1"}, 9};
    options.note = [this](std::string_view line) { take(line); };
    return options;
  }
  void listen(ListenOptions given) {
    auto bound = sampler->listen(std::move(given));
    ASSERT_TRUE(bound.ok()) << bound.message();
    address = bound.take();
  }
  std::unique_ptr<WorkerSampler> sampler;
  comm::TcpAddress address;
};

TEST_F(WorkerListenerTest, WorkersJoinAndLeaveInTheMidstOfARun) {
  testing::Results expected, results;
  expect(expected, 60);
  listen(options());
  RemoteWorker first(address);
  awaitWorker(*sampler);
  update(*sampler, 0);
  std::list<RemoteWorker> later;
  for (int i = 0; i < 60; ++i) {
    sampler->submit(requestOf(i % 7), results.at(std::size_t(i)));
    if (i == 10 || i == 20)
      later.emplace_back(address);
    if (i == 30) {
      awaitNote("joins", 3);
      first.end();
    }
  }
  results.wait(60);
  EXPECT_TRUE(results.failure.ok()) << results.failure.message();
  expectEqual(results, expected);
  awaitNote("closed its end");
  sampler->stop();
  for (RemoteWorker &worker : later) {
    worker.join();
    EXPECT_TRUE(worker.status.ok()) << worker.status.message();
    EXPECT_EQ(worker.ending, WorkerEnd::over);
    EXPECT_EQ(worker.job->config, "config");
    EXPECT_EQ(worker.job->longestPrompt, 9);
  }
  EXPECT_GT(sampler->publishSeconds(), 0);
}

TEST_F(WorkerListenerTest, WhatNoWorkerHasIsSampledByTheNextOne) {
  testing::Results expected, results;
  expect(expected, 8);
  listen(options());
  {
    RemoteWorker first(address);
    awaitWorker(*sampler);
    update(*sampler, 0);
    first.end();
    awaitNote("none is left, and the run waits for one");
  }
  for (int i = 0; i < 8; ++i)
    sampler->submit(requestOf(i % 7), results.at(std::size_t(i)));
  RemoteWorker second(address);
  results.wait(8);
  expectEqual(results, expected);
  sampler->stop();
}

TEST_F(WorkerListenerTest, OneThatCannotSampleIsReplaced) {
  testing::Results expected, results;
  expect(expected, 2);
  listen(options());
  RemoteWorker broken(address);
  broken.model.broken = true;
  awaitWorker(*sampler);
  update(*sampler, 0);
  for (int i = 0; i < 2; ++i)
    sampler->submit(requestOf(i % 7), results.at(std::size_t(i)));
  awaitNote("cannot sample: sampling: the device is gone");
  RemoteWorker other(address);
  results.wait(2);
  expectEqual(results, expected);
  broken.join();
  EXPECT_EQ(broken.status.message(), "sampling: the device is gone");
  sampler->stop();
}

TEST_F(WorkerListenerTest, AnotherModelIsRefused) {
  listen(options());
  RemoteWorker first(address);
  awaitWorker(*sampler);
  auto tensors = testing::parameters();
  tensors[1].shape = {4};
  tensors[1].size = 16;
  RemoteWorker other(address, tensors);
  other.join();
  EXPECT_EQ(other.status.message(),
            "the learner refuses this worker: samples with 'b' as F32 [4], and "
            "not with 'b' as F32 [3]");
  awaitNote("samples with 'b' as F32 [4]");
  sampler->stop();
  first.join();
  EXPECT_EQ(first.ending, WorkerEnd::over);
}

TEST_F(WorkerListenerTest, OneThatSendsNothingIsGivenUp) {
  testing::Results expected, results;
  expect(expected, 1);
  ListenOptions given = options();
  given.silence = std::chrono::milliseconds(50);
  listen(std::move(given));
  RemoteWorker silent(address);
  awaitWorker(*sampler);
  awaitNote("has sent nothing for 0.05 s");
  update(*sampler, 0);
  sampler->submit(requestOf(0), results.at(0));
  addHere(*sampler); // without such a limit
  results.wait(1);
  expectEqual(results, expected);
  silent.join();
  EXPECT_EQ(silent.ending, WorkerEnd::lost);
  sampler->stop();
}

TEST_F(WorkerListenerTest, TokensThatTheVocabularyLacksAreNotLearnedFrom) {
  testing::Results expected, results;
  expect(expected, 1);
  listen(options());
  auto socket = comm::connectTo(address);
  ASSERT_TRUE(greetLearner(socket->get(), secretOf(kSecret),
                           SocketClock::now() + std::chrono::seconds(10))
                  .status.ok());
  Connection liar(socket.take());
  ASSERT_TRUE(liar.send(pack(Hello{24, 4, testing::parameters()})).ok());
  awaitWorker(*sampler);
  update(*sampler, 0);
  sampler->submit(requestOf(0), results.at(0));
  for (bool isAsked = false; !isAsked;) {
    auto message = liar.receive(1 << 20);
    ASSERT_TRUE(message.ok() && *message);
    isAsked = (*message)->kind == MessageKind::request;
  }
  Sample sample{.tokens = {11}, .logProbs = {-1}, .versions = {0}};
  ASSERT_TRUE(liar.send(pack(NumberedSamples{0, {sample, sample}})).ok());
  awaitNote("sent tokens that the vocabulary lacks");
  RemoteWorker other(address);
  results.wait(1);
  expectEqual(results, expected);
  sampler->stop();
}

TEST_F(WorkerListenerTest, ARequestThatTwoCannotSampleFails) {
  testing::Results results;
  listen(options());
  RemoteWorker first(address), second(address);
  first.model.broken = second.model.broken = true;
  awaitNote("joins", 2);
  update(*sampler, 0);
  sampler->submit(requestOf(0), results.at(0));
  results.wait(1);
  EXPECT_EQ(results.failure.message(), "sampling: the device is gone");
  sampler->stop();
}

TEST_F(WorkerListenerTest, MoreWeightsThanTheModelHasAreRefused) {
  listen(options());
  auto tensors = testing::parameters();
  tensors[0].shape = {uint64_t(1) << 40};
  tensors[0].size = uint64_t(4) << 40;
  auto socket = comm::connectTo(address);
  ASSERT_TRUE(greetLearner(socket->get(), secretOf(kSecret),
                           SocketClock::now() + std::chrono::seconds(10))
                  .status.ok());
  Connection greedy(socket.take());
  ASSERT_TRUE(greedy.send(pack(Hello{24, 4, tensors})).ok());
  awaitNote("samples with more weights than the model has");
  RemoteWorker other(address); // decides which model it is
  awaitWorker(*sampler);
  sampler->stop();
}

TEST_F(WorkerListenerTest, LogProbabilitiesThatAreNotFiniteAreRefused) {
  testing::Results expected, results;
  expect(expected, 1);
  listen(options());
  auto socket = comm::connectTo(address);
  ASSERT_TRUE(greetLearner(socket->get(), secretOf(kSecret),
                           SocketClock::now() + std::chrono::seconds(10))
                  .status.ok());
  Connection liar(socket.take());
  ASSERT_TRUE(liar.send(pack(Hello{24, 4, testing::parameters()})).ok());
  awaitWorker(*sampler);
  update(*sampler, 0);
  sampler->submit(requestOf(0), results.at(0));
  for (bool isAsked = false; !isAsked;) {
    auto message = liar.receive(1 << 20);
    ASSERT_TRUE(message.ok() && *message);
    isAsked = (*message)->kind == MessageKind::request;
  }
  Sample sample{.tokens = {1}, .logProbs = {NAN}, .versions = {0}};
  ASSERT_TRUE(liar.send(pack(NumberedSamples{0, {sample, sample}})).ok());
  awaitNote("sent log-probabilities that are not finite");
  RemoteWorker other(address);
  results.wait(1);
  expectEqual(results, expected);
  sampler->stop();
}

TEST_F(WorkerListenerTest, OneThatIsNotReadyLearnsThatTheRunIsOver) {
  listen(options());
  auto socket = comm::connectTo(address);
  ASSERT_TRUE(greetLearner(socket->get(), secretOf(kSecret),
                           SocketClock::now() + std::chrono::seconds(10))
                  .status.ok());
  Connection slow(socket.take()); // it still compiles
  auto job = slow.receive(1 << 20);
  ASSERT_TRUE(job.ok() && *job);
  sampler->stop();
  auto end = slow.receive(1 << 20);
  ASSERT_TRUE(end.ok() && *end);
  EXPECT_EQ((*end)->kind, MessageKind::end);
}

TEST_F(WorkerListenerTest, WhateverElseComesIsNamedAndRefused) {
  listen(options());
  const std::string text(100, 'x');
  {
    auto socket = comm::connectTo(address);
    ASSERT_TRUE(socket.ok()) << socket.message();
    const std::string name = comm::localAddress(socket->get())->text();
    ASSERT_TRUE(comm::writeBytes(socket->get(), std::as_bytes(std::span(text)),
                                 SocketClock::now() + std::chrono::seconds(9)));
    awaitNote("refused " + name + ", which is not a rollout worker");
  }
  {
    auto socket = comm::connectTo(address);
    const Refusal refusal =
        greetLearner(socket->get(), secretOf("no secret of the test"),
                     SocketClock::now() + std::chrono::seconds(10));
    EXPECT_EQ(refusal.status.message(),
              "has another secret; give both the same");
    awaitNote("does not know the secret");
  }
  RemoteWorker worker(address);
  awaitWorker(*sampler);
  sampler->stop();
  worker.join();
  EXPECT_EQ(worker.ending, WorkerEnd::over);
}

TEST_F(WorkerListenerTest, GuestsDoNotDelayTheEnd) {
  listen(options());
  std::vector<comm::Socket> silent;
  for (int i = 0; i < 40; ++i)
    silent.push_back(comm::connectTo(address).take());
  std::byte greeting[48]; // the first one is waited for
  ASSERT_TRUE(comm::readBytes(silent[0].get(), greeting,
                              SocketClock::now() + std::chrono::seconds(60)));
  const auto begin = SocketClock::now();
  sampler->stop();
  EXPECT_LT(SocketClock::now() - begin, std::chrono::seconds(9));
}

TEST_F(WorkerListenerTest, OtherMachinesNeedASecret) {
  ListenOptions given = options();
  given.secret = secretOf("");
  given.address.host = "0.0.0.0";
  auto bound = sampler->listen(std::move(given));
  EXPECT_NE(bound.message().find("which needs a secret"), std::string::npos)
      << bound.message();
}

TEST(TcpAddressTest, IsParsed) {
  EXPECT_EQ(comm::TcpAddress::parse("[::1]:70")->host, "::1");
  EXPECT_EQ(comm::TcpAddress::parse("node-3:7000")->port, 7000);
  EXPECT_EQ(comm::TcpAddress::parse("[::1]:70")->text(), "[::1]:70");
  for (const char *text : {"", ":1", "host", "host:", "host:x", "host:65536",
                           "::1:70", "host:-1", "host:1x"})
    EXPECT_FALSE(comm::TcpAddress::parse(text).ok()) << text;
}

} // namespace
} // namespace tessera::rl
