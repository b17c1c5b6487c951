// A worker that has nothing but the address of a learner.
#include "compiler/api/rl/RemoteWorker.h"
#include "compiler/api/rl/RlWorkers.h"

#include <atomic>
#include <thread>

#include "test/compiler/api/rl/TinyRun.h"

namespace tessera {
namespace {

class RemoteWorker : public testing::TinyRun {
protected:
  RemoteWorker() {
    options.cache = "off";
    options.threads = 1;
    options.reconnect = 0;
    options.note = [this](std::string_view line) { said.emplace_back(line); };
  }

  RemoteWorkerOptions options;
  std::vector<std::string> said;
};

TEST_F(RemoteWorker, NeedsTheAddressOfALearner) {
  options.connect = "nowhere";
  EXPECT_EQ(workForLearner(options).message().find("--connect: "), 0U);
  options.connect = "127.0.0.1:0";
  EXPECT_EQ(workForLearner(options).message(),
            "--connect: port 0 is none; name the port that the learner's "
            "--rollout-listen says");
}

TEST_F(RemoteWorker, EndsIfNoLearnerComes) {
  options.connect = "127.0.0.1:1"; // tcpmux, which does not listen
  EXPECT_EQ(workForLearner(options).message().find("no learner within 0 s: "),
            0U);
}

// It compiles what the learner says, with the sizes of the learner's recipe,
// and ends with the learner.
TEST_F(RemoteWorker, CompilesWhatTheLearnerAsksFor) {
  write("model/model.safetensors", "");
  arguments.listen = "127.0.0.1:0";
  ASSERT_EQ(errorOfCheck(), "");
  auto workers = prepareWorkers(arguments, *source, /*longest=*/3);
  ASSERT_TRUE(workers.ok() && *workers) << workers.message();
  options.connect = notes.at(0).substr(notes[0].rfind(' ') + 1);
  Status status = Status::error("has not ended");
  std::atomic<bool> hasEnded = false;
  std::thread worker([&] {
    status = workForLearner(options);
    hasEnded = true;
  });
  const auto came = (*workers)->awaitWorker([&] { return hasEnded.load(); });
  EXPECT_TRUE(came.ok() && *came) << came.message();
  EXPECT_EQ((*workers)->context(), 32); // of batch.sequence
  (*workers)->stop();
  worker.join();
  EXPECT_TRUE(status.ok()) << status.message();
  ASSERT_FALSE(said.empty());
  EXPECT_EQ(said.back(), "the learner has ended the run");
}

} // namespace
} // namespace tessera
