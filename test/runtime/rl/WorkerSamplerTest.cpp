// Workers sample what an engine in this process samples, also if they end on
// the way. Here they are threads with a model whose logits are hashes.
#include "test/runtime/rl/FakeWorkers.h"

#include <cstring>

namespace tessera::rl {
namespace {

using testing::expectEqual;
using testing::requestOf;
using testing::Results;
using testing::ThreadWorker;

class WorkerSamplerTest : public testing::SamplerTest {
protected:
  std::unique_ptr<WorkerSampler> create(int count) {
    auto sampler = std::make_unique<WorkerSampler>(
        testing::shapeOfModel().vocab, uint64_t(1) << 30,
        [this](std::string_view line) { take(line); });
    Status started = sampler->start(count, [this]() -> StatusOr<StartedWorker> {
      return StartedWorker{startHere(), {}};
    });
    EXPECT_TRUE(started.ok()) << started.message();
    awaitWorker(*sampler, count);
    return sampler;
  }
};

TEST_F(WorkerSamplerTest, SampleWhatAnEngineHereSamples) {
  Results expected, results;
  expect(expected, 12);
  auto sampler = create(3);
  EXPECT_EQ(sampler->context(), 24);
  update(*sampler, 0);
  for (int i = 0; i < 12; ++i)
    sampler->submit(requestOf(i % 7), results.at(std::size_t(i)));
  results.wait(12);
  EXPECT_TRUE(results.failure.ok()) << results.failure.message();
  expectEqual(results, expected);
  sampler->stop();
  EXPECT_TRUE(notes.empty());
}

TEST_F(WorkerSamplerTest, TakeWeightsThatWereWritten) {
  Results results;
  auto sampler = create(2);
  update(*sampler, 0);
  update(*sampler, 5); // the second tensor keeps its values
  for (int i = 0; i < 2; ++i)
    sampler->submit(requestOf(i), results.at(std::size_t(i)));
  results.wait(2);
  for (const std::vector<Sample> &samples : results.all)
    for (const Sample &sample : samples)
      EXPECT_EQ(sample.versions,
                std::vector<uint32_t>(sample.tokens.size(), 5));
  sampler->stop();
  for (ThreadWorker &worker : workers) {
    worker.thread.join();
    worker.thread = std::thread([] {});
    EXPECT_TRUE(worker.status.ok()) << worker.status.message();
    for (std::size_t i : {0, 1}) {
      float value = 0;
      std::memcpy(&value, worker.weights.bytesOf(i).data(), sizeof(value));
      EXPECT_EQ(value, i == 0 ? 5 : 7);
    }
  }
}

TEST_F(WorkerSamplerTest, OneThatEndsIsStartedAgain) {
  Results expected, results;
  expect(expected, 40);
  auto sampler = create(1);
  update(*sampler, 0);
  sampler->submit(requestOf(0), results.at(0));
  results.wait(1);
  for (int i = 1; i < 40; ++i) {
    sampler->submit(requestOf(i % 7), results.at(std::size_t(i)));
    if (i == 20) {
      std::lock_guard lock(mutex);
      workers.back().connection.shutDown();
    }
  }
  results.wait(40);
  EXPECT_TRUE(results.failure.ok()) << results.failure.message();
  expectEqual(results, expected);
  sampler->stop();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("rollout worker 1"), std::string::npos) << notes[0];
}

TEST_F(WorkerSamplerTest, OneThatEndsAtOnceFailsTheRequests) {
  Results results;
  auto sampler = create(1);
  update(*sampler, 0);
  workers.back().connection.shutDown();
  sampler->submit(requestOf(0), results.at(0));
  results.wait(1);
  EXPECT_TRUE(results.failure.message().starts_with("rollout worker 1 "))
      << results.failure.message();
  EXPECT_TRUE(
      results.failure.message().ends_with("before it had sampled anything"))
      << results.failure.message();
  sampler->submit(requestOf(0), results.at(1));
  results.wait(2);
}

TEST_F(WorkerSamplerTest, ADeviceThatFailsIsNamed) {
  Results results;
  auto sampler = create(1);
  workers.back().model.broken = true;
  update(*sampler, 0);
  sampler->submit(requestOf(0), results.at(0));
  results.wait(1);
  EXPECT_EQ(results.failure.message(), "sampling: the device is gone");
}

} // namespace
} // namespace tessera::rl
