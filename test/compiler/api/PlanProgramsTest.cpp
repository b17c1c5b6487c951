// The plan file that is written has the plan whose program fits.
#include "compiler/api/PlanPrograms.h"

#include <filesystem>
#include <gtest/gtest.h>

#include "test/compiler/api/TinyQuestion.h"
#include "test/support/ScratchDirectory.h"

namespace tessera {
namespace {

class PlanProgramsTest : public ::testing::Test {
protected:
  PlanProgramsTest() {
    answer.chosen = testing::candidateOf(question, "data=4,micro=2");
    answer.given = true;
    options.spec = testing::kTinySpec;
    options.set = testing::kTinyKeys;
    options.note = [this](std::string_view line) { notes.emplace_back(line); };
  }

  testing::ScratchDirectory scratch;
  planner::Question question = testing::tinyQuestion();
  planner::Answer answer;
  PlanProgramOptions options;
  std::vector<std::string> notes;
};

TEST_F(PlanProgramsTest, WritesThePlanWithTheMemoryOfItsProgram) {
  options.output = scratch.path + "/plan.yaml";
  options.count = 1;
  const auto table = compilePlans(options, question, answer);
  ASSERT_TRUE(table.ok()) << table.message();
  const std::string name = describe(answer.chosen.plan);
  EXPECT_EQ(notes, std::vector{"compiling " + name + " …"});
  EXPECT_EQ(table->find("compiled to the execution plan; "), 0U) << *table;
  EXPECT_TRUE(table->ends_with("%  " + name + "\n")) << *table;
  const auto file = planner::loadPlanFile(options.output);
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ(file->plan, meshPlanOf(question.workload, answer.chosen.plan));
  EXPECT_EQ(file->target, question.cluster.gpu.target);
  EXPECT_GT(file->predicted.stateBytes, 0);
  EXPECT_GT(file->predicted.arenaBytes, 0);
}

TEST_F(PlanProgramsTest, WritesNoPlanThatDoesNotFit) {
  options.output = scratch.path + "/plan.yaml";
  question.cluster.gpu.memory = question.workload.libraryBytes;
  const auto table = compilePlans(options, question, answer);
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.message().find("-o " + options.output +
                                 ": the program of no plan fits "),
            0U)
      << table.message();
  EXPECT_FALSE(std::filesystem::exists(options.output));
}

TEST_F(PlanProgramsTest, CompilesNothingUnasked) {
  EXPECT_EQ(*compilePlans(options, question, answer), "");
  EXPECT_TRUE(notes.empty());
}

TEST_F(PlanProgramsTest, SaysWhatIsNotBuilt) {
  question.workload.fp8 = true;
  EXPECT_EQ(*compilePlans(options, question, answer),
            "not compiled: it computes in bf16, not in fp8\n");
  options.count = 1;
  EXPECT_EQ(compilePlans(options, question, answer).message(),
            "tiny-mixtral: the compiler does not build it: it computes in "
            "bf16, not in fp8");
}

} // namespace
} // namespace tessera
