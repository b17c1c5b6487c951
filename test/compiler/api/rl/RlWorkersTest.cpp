// Workers that may join before anything is compiled.
#include "compiler/api/rl/RlWorkers.h"
#include "compiler/api/rl/RolloutSecret.h"

#include "test/compiler/api/rl/TinyRun.h"

namespace tessera {
namespace {

class RlWorkersTest : public testing::TinyRun {
protected:
  RlWorkersTest() {
    write("model/model.safetensors", "");
    EXPECT_EQ(errorOfCheck(), "");
  }
};

TEST_F(RlWorkersTest, AreNoneUnlessAskedFor) {
  const auto workers = prepareWorkers(arguments, *source, 3);
  ASSERT_TRUE(workers.ok()) << workers.message();
  EXPECT_FALSE(*workers);
  EXPECT_TRUE(notes.empty());
}

// One on this machine needs no secret, and is sent what to compile.
TEST_F(RlWorkersTest, AreToldWhatToSample) {
  arguments.listen = "127.0.0.1:0";
  write("recipe.yaml", "task: policy\n");
  arguments.recipe = scratch / "recipe.yaml";
  const auto workers = prepareWorkers(arguments, *source, /*longest=*/3);
  ASSERT_TRUE(workers.ok() && *workers) << workers.message();
  ASSERT_EQ(notes.size(), 1U);
  const std::string begin =
      "rollout workers may join: tessera rollout-worker --connect ";
  ASSERT_EQ(notes[0].find(begin + "127.0.0.1:"), 0U) << notes[0];
  const auto address = comm::TcpAddress::parse(notes[0].substr(begin.size()));
  ASSERT_TRUE(address.ok() && address->port > 0) << notes[0];
  auto socket = comm::connectTo(*address);
  ASSERT_TRUE(socket.ok()) << socket.message();
  const rl::Refusal refusal =
      rl::greetLearner(socket->get(), *readRolloutSecret(""),
                       comm::SocketClock::now() + std::chrono::seconds(10));
  ASSERT_TRUE(refusal.status.ok()) << refusal.status.message();
  rl::Connection connection(socket.take());
  auto message = connection.receive(1 << 20);
  ASSERT_TRUE(message.ok() && *message);
  const auto job = rl::unpackJob((*message)->payload);
  ASSERT_TRUE(job.ok()) << job.message();
  EXPECT_EQ(job->config, *source->files.read("config.json", 1 << 20));
  EXPECT_EQ(job->recipe, "task: policy\n");
  EXPECT_EQ(job->set, arguments.set);
  EXPECT_EQ(job->longestPrompt, 3);
}

TEST_F(RlWorkersTest, NeedAnAddressThatCanBeTaken) {
  arguments.listen = "nowhere";
  const auto workers = prepareWorkers(arguments, *source, 3);
  EXPECT_EQ(workers.message().find("--rollout-listen: "), 0U)
      << workers.message();
}

} // namespace
} // namespace tessera
