// Rollout workers that are threads, with a model whose logits are hashes.
#pragma once
#include "runtime/rl/EngineSampler.h"
#include "runtime/rl/RolloutWorker.h"
#include "runtime/rl/WorkerSampler.h"
#include "test/runtime/infer/engine/FakeModel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <list>

#include <sys/socket.h>

namespace tessera::rl::testing {

using tessera::testing::FakeModel;

inline DecoderShape shapeOfModel() {
  DecoderShape shape;
  shape.context = 24;
  shape.page = 4;
  shape.pages = 40;
  shape.chunk = 8;
  shape.vocab = 11;
  shape.buckets = {1, 4};
  return shape;
}

inline std::vector<StateTensor> parameters() {
  return {{"a", SafetensorsType::f32, {2}, StateRole::parameter, 8},
          {"b", SafetensorsType::f32, {3}, StateRole::parameter, 12}};
}

inline SampleRequest requestOf(int32_t first) {
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

inline void expectEqual(const Results &a, const Results &b) {
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
      auto end = runRolloutWorker(connection, model, weights);
      status = end.status();
      isOver = end.ok() && *end == WorkerEnd::over;
      connection.shutDown();
    });
  }
  ~ThreadWorker() { thread.join(); }
  Connection connection;
  FakeModel model{shapeOfModel()};
  HostWeights weights{parameters()};
  Status status = Status::success();
  bool isOver = false;
  std::thread thread;
};

class SamplerTest : public ::testing::Test {
protected:
  /// A worker on a thread of this process.
  std::unique_ptr<Connection> startHere() {
    std::lock_guard lock(mutex);
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    workers.emplace_back(ends[1]);
    return std::make_unique<Connection>(comm::Socket(ends[0]));
  }
  void addHere(WorkerSampler &sampler) {
    sampler.add(startHere(), "a worker here");
  }
  static void awaitWorker(WorkerSampler &sampler, int count = 1) {
    auto came = sampler.awaitWorker([] { return false; }, count);
    EXPECT_TRUE(came.ok() && *came) << came.message();
  }
  void take(std::string_view line) {
    std::lock_guard lock(mutex);
    notes.emplace_back(line);
    changed.notify_all();
  }
  /// Waits for so many notes with the text.
  void awaitNote(const std::string &text, int count = 1) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] {
      return std::ranges::count_if(notes, [&](const std::string &note) {
               return note.find(text) != std::string::npos;
             }) >= count;
    });
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
    FakeModel model(shapeOfModel());
    HostWeights weights(parameters());
    EngineSampler sampler(model, weights);
    update(sampler, 0);
    for (int i = 0; i < count; ++i)
      sampler.submit(requestOf(i % 7), results.at(std::size_t(i)));
    results.wait(std::size_t(count));
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::list<ThreadWorker> workers; ///< last started: last
  std::vector<std::string> notes;
};

} // namespace tessera::rl::testing
