// What `tessera plan` assumes, and what it cannot answer.
#include "compiler/api/PlanQuestion.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using planner::Question;

class PlanQuestion : public ::testing::Test {
protected:
  PlanQuestion() {
    options.spec = TESSERA_SPECS "/llama-3-8b";
    options.cluster = TESSERA_CLUSTERS "/dgx-h100-128x8.yaml";
  }
  Question question() {
    auto read = readQuestion(options);
    EXPECT_TRUE(read.ok()) << read.message();
    return read.ok() ? read.take() : Question();
  }
  std::string error() { return std::string(readQuestion(options).message()); }

  QuestionOptions options;
};

// A batch that is usual for large models: 4 Mi tokens.
TEST_F(PlanQuestion, AssumesABatchWithoutARecipe) {
  const Question read = question();
  EXPECT_EQ(read.modelName, "llama-3-8b");
  EXPECT_EQ(read.workload.sequence, 4096);
  EXPECT_EQ(read.workload.globalBatch, 1024);
  EXPECT_EQ(read.cluster.gpus(), 1024);
  EXPECT_EQ(read.scope, planner::Scope::Compiled);
  options.sequence = 2048;
  EXPECT_EQ(question().workload.globalBatch, 2048);
  options.globalBatch = 512;
  EXPECT_EQ(question().workload.globalBatch, 512);
}

TEST_F(PlanQuestion, TakesTheBatchOfARecipe) {
  options.recipe = TESSERA_RECIPES "/tiny-gpt2.yaml";
  options.set = {"precision.compute=bf16", "batch.sequence=64", "batch.micro=6",
                 "batch.accumulate=2"};
  const Question read = question();
  EXPECT_EQ(read.workload.sequence, 64);
  EXPECT_EQ(read.workload.globalBatch, 12);
  options.set = {"precision.compute=fp32"};
  EXPECT_EQ(error(), "--recipe " + options.recipe +
                         ": costs of GPUs are known for bf16 only; add --set "
                         "precision.compute=bf16");
}

TEST_F(PlanQuestion, NamesAModelByItsFolder) {
  options.spec += "/config.json";
  EXPECT_EQ(question().modelName, "llama-3-8b");
}

TEST_F(PlanQuestion, ResizesTheCluster) {
  options.gpus = 64;
  EXPECT_EQ(question().cluster.gpus(), 64);
  options.perGpu = "25GB/s";
  EXPECT_EQ(question().cluster.links.at(1).perGpu, 25e9);
  options.perGpu = "25";
  EXPECT_EQ(error().find("--internode-per-gpu: "), 0U) << error();
}

TEST_F(PlanQuestion, ReadsWhatOverlaps) {
  const auto overlaps = [&](const char *kinds) {
    options.overlap = kinds;
    const planner::Overlap overlap = question().workload.overlap;
    return std::vector{overlap.tensor, overlap.expert, overlap.data,
                       overlap.pipe};
  };
  EXPECT_EQ(overlaps(""), (std::vector{true, false, true, true})); // compiled
  EXPECT_EQ(overlaps("all"), (std::vector{true, true, true, true}));
  EXPECT_EQ(overlaps("none"), (std::vector{false, false, false, false}));
  EXPECT_EQ(overlaps("expert,pipe"), (std::vector{false, true, false, true}));
  options.overlap = "data,much";
  EXPECT_EQ(error(), "--overlap: unknown kind 'much'; expected all, none, or "
                     "any of tensor, expert, data, pipe");
}

// The compiler has no fp8, so plans of any software are considered.
TEST_F(PlanQuestion, KnowsWhichGpusHaveFp8) {
  options.precision = "fp8";
  EXPECT_EQ(question().scope, planner::Scope::Any);
  options.cluster = TESSERA_CLUSTERS "/dgx-a100-80g-32x8.yaml";
  EXPECT_EQ(error().find("--precision fp8: "), 0U) << error();
}

TEST_F(PlanQuestion, SaysHowLongSequencesMayBe) {
  options.sequence = 1 << 20;
  EXPECT_EQ(error(), "--sequence 1048576: the model supports 8192 tokens");
}

} // namespace
} // namespace tessera
