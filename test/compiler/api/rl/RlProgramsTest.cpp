// How the programs of a run share processors, and what samples.
#include "compiler/api/rl/RlPrograms.h"
#include "compiler/api/DecoderProgram.h"

#include "test/compiler/api/rl/TinyRun.h"

namespace tessera {
namespace {

RlArguments with(unsigned threads) {
  RlArguments arguments;
  arguments.threads = threads;
  return arguments;
}

recipe::Recipe withStaleness(int64_t staleness) {
  recipe::Recipe recipe;
  recipe.rollout.staleness = staleness;
  return recipe;
}

TEST(ThreadsOf, AreAllOfEachProgramIfTheyAlternate) {
  const RlThreads threads = threadsOf(with(8), withStaleness(0), nullptr);
  for (const ProgramThreads &each :
       {threads.learner, threads.sampler, threads.reference}) {
    EXPECT_EQ(each.count, 8U);
    EXPECT_FALSE(each.processors.share);
  }
}

// Each may have all while the others wait.
TEST(ThreadsOf, AreHalfOfEachProgramWhileTheyOverlap) {
  const RlThreads threads = threadsOf(with(7), withStaleness(1), nullptr);
  EXPECT_EQ(threads.learner.count, 7U);
  EXPECT_EQ(threads.learner.processors.part, 4U);
  EXPECT_EQ(threads.sampler.processors.part, 3U);
  EXPECT_EQ(threads.reference.processors.part, 3U);
  ASSERT_TRUE(threads.learner.processors.share);
  EXPECT_EQ(threads.learner.processors.share, threads.sampler.processors.share);
  EXPECT_NE(threads.learner.processors.pool, threads.sampler.processors.pool);
}

TEST(ThreadsOf, AreDividedAmongWorkers) {
  RlArguments arguments = with(8);
  arguments.workers = 2;
  const RlThreads threads = threadsOf(arguments, withStaleness(1), nullptr);
  EXPECT_EQ(threads.ofWorker, 2U);
  EXPECT_EQ(threads.learner.count, 4U);
  EXPECT_FALSE(threads.learner.processors.share); // processes share nothing
  arguments.workers = 100;
  EXPECT_EQ(threadsOf(arguments, withStaleness(1), nullptr).ofWorker, 1U);
}

// With workers on other machines, the learner shares this one with the
// reference model alone.
TEST(ThreadsOf, AreTheLearnersIfOtherMachinesSample) {
  RlArguments arguments = with(8);
  arguments.listen = "0.0.0.0:7000";
  const RlThreads threads = threadsOf(arguments, withStaleness(1), nullptr);
  EXPECT_TRUE(threads.learner.processors.share);
  EXPECT_TRUE(threads.reference.processors.share);
  EXPECT_FALSE(threads.sampler.processors.share);
}

class CompileSampler : public testing::TinyRun {
protected:
  DecoderShape compile(int64_t longest) {
    write("model/model.safetensors", "");
    EXPECT_EQ(errorOfCheck(), "");
    TemporaryFile file;
    EXPECT_FALSE(bool(file.create()));
    Status status = compileSampler(arguments, recipe, longest, file.name());
    EXPECT_TRUE(status.ok()) << status.message();
    DecodingModel model;
    status = model.open(file.name(), "cpu", {1, {}});
    EXPECT_TRUE(status.ok()) << status.message();
    return model.programs ? model.programs->shape() : DecoderShape();
  }
};

TEST_F(CompileSampler, HasTheSizesOfAStep) {
  const DecoderShape shape = compile(/*longest=*/17);
  ASSERT_FALSE(shape.buckets.empty());
  EXPECT_EQ(shape.buckets.back(), 2 * 3); // prompts and their group
  EXPECT_EQ(shape.context, 32);           // of the batch's sequences
  EXPECT_EQ(shape.chunk, 32);             // multiples of 16
}

TEST_F(CompileSampler, HasTheSizesOfTheRecipe) {
  arguments.set.insert(arguments.set.end(),
                       {"inference.batch=2", "inference.context=48"});
  const DecoderShape shape = compile(/*longest=*/3);
  ASSERT_FALSE(shape.buckets.empty());
  EXPECT_EQ(shape.buckets.back(), 2);
  EXPECT_EQ(shape.context, 48);
  EXPECT_EQ(shape.chunk, 16);
}

} // namespace
} // namespace tessera
