// Workers sample what an engine in this process samples, also if they end on
// the way. Here they are threads with a model whose logits are hashes.
#include "runtime/rl/WorkerSampler.h"
#include "runtime/rl/EngineSampler.h"
#include "runtime/rl/RolloutWorker.h"
#include "test/runtime/infer/engine/FakeModel.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <list>

#include <sys/socket.h>

namespace tessera::rl {
namespace {

DecoderShape shapeOfModel() {
  DecoderShape shape;
  shape.context = 24;
  shape.page = 4;
  shape.pages = 40;
  shape.chunk = 8;
  shape.vocab = 11;
  shape.buckets = {1, 4};
  return shape;
}

std::vector<StateTensor> parameters() {
  return {{"a", SafetensorsType::f32, {2}, StateRole::parameter, 8},
          {"b", SafetensorsType::f32, {3}, StateRole::parameter, 12}};
}

SampleRequest requestOf(int32_t first) {
  return {{first, first + 1, 3}, {uint64_t(first), 99}, 1, 6, {0}};
}

/// Collects completions.
class Results {
public:
  Sampler::Done at(std::size_t index) {
    return [this, index](StatusOr<std::vector<Sample>> samples) {
      std::lock_guard lock(mutex);
      if (all.size() <= index)
        all.resize(index + 1);
      if (samples.ok())
        all[index] = samples.take();
      else
        failure = samples.status();
      ++done;
      changed.notify_all();
    };
  }
  void wait(std::size_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done >= count; });
  }
  std::vector<std::vector<Sample>> all;
  Status failure = Status::success();
  std::size_t done = 0;

private:
  std::mutex mutex;
  std::condition_variable changed;
};

void expectEqual(const Results &a, const Results &b) {
  ASSERT_EQ(a.all.size(), b.all.size());
  for (std::size_t i = 0; i < a.all.size(); ++i) {
    ASSERT_EQ(a.all[i].size(), b.all[i].size());
    for (std::size_t j = 0; j < a.all[i].size(); ++j) {
      EXPECT_EQ(a.all[i][j].tokens, b.all[i][j].tokens);
      EXPECT_EQ(a.all[i][j].logProbs, b.all[i][j].logProbs);
      EXPECT_EQ(a.all[i][j].versions, b.all[i][j].versions);
      EXPECT_EQ(a.all[i][j].isCut, b.all[i][j].isCut);
    }
  }
}

/// One worker, on a thread.
struct ThreadWorker {
  explicit ThreadWorker(int socket) : connection(comm::Socket(socket)) {
    thread = std::thread([this] {
      status = runRolloutWorker(connection, model, weights);
      connection.shutDown();
    });
  }
  ~ThreadWorker() { thread.join(); }
  Connection connection;
  testing::FakeModel model{shapeOfModel()};
  HostWeights weights{parameters()};
  Status status = Status::success();
  std::thread thread;
};

class WorkerSamplerTest : public ::testing::Test {
protected:
  StatusOr<StartedWorker> start() {
    std::lock_guard lock(mutex);
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    workers.emplace_back(ends[1]);
    return StartedWorker{std::make_unique<Connection>(comm::Socket(ends[0])),
                         {}};
  }
  std::unique_ptr<WorkerSampler> create(int count) {
    auto sampler = WorkerSampler::create(
        count, [this] { return start(); },
        [this](std::string_view line) { notes.emplace_back(line); });
    EXPECT_TRUE(sampler.ok()) << sampler.message();
    return sampler.take();
  }
  static Status write(Sampler &sampler, std::size_t tensor, float value) {
    const std::vector<StateTensor> &state = sampler.weights().state();
    const std::vector<float> values(state[tensor].size / sizeof(float), value);
    return sampler.weights().writeState(state[tensor], 0,
                                        std::as_bytes(std::span(values)));
  }
  static void update(Sampler &sampler, uint32_t version) {
    const Status status = sampler.updateWeights(version, [&] {
      TESSERA_RETURN_IF_ERROR(write(sampler, 0, float(version)));
      return version == 0 ? write(sampler, 1, 7) : Status::success();
    });
    EXPECT_TRUE(status.ok()) << status.message();
  }
  /// By an engine of this process.
  static void expect(Results &results, int count) {
    testing::FakeModel model(shapeOfModel());
    HostWeights weights(parameters());
    EngineSampler sampler(model, weights);
    update(sampler, 0);
    for (int i = 0; i < count; ++i)
      sampler.submit(requestOf(i % 7), results.at(std::size_t(i)));
    results.wait(std::size_t(count));
  }

  std::mutex mutex;
  std::list<ThreadWorker> workers; ///< last started: last
  std::vector<std::string> notes;
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
