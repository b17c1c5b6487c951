// A question of `tessera plan` about a small model on four GPUs.
#pragma once
#include "parallelism/planner/PlanFile.h"
#include "parallelism/planner/Report.h"
#include "runtime/recipe/Recipe.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace tessera::testing {

inline const char *const kTinySpec = TESSERA_SPECS "/tiny-mixtral";
inline const std::vector<std::string> kTinyKeys = {
    "batch.micro=8", "batch.sequence=64", "precision.compute=bf16"};

inline planner::Question tinyQuestion() {
  planner::Question question;
  question.modelName = "tiny-mixtral";
  question.model = *planner::loadModelShape(kTinySpec);
  question.cluster =
      *planner::loadCluster(TESSERA_CLUSTERS "/dgx-h100-1x8.yaml");
  EXPECT_TRUE(planner::resize(question.cluster, 4).ok());
  question.workload =
      planner::workloadOf(question.model, *recipe::loadRecipe("", kTinyKeys));
  question.scope = planner::Scope::Compiled;
  return question;
}

/// `text` as --fix has it.
inline planner::Candidate candidateOf(const planner::Question &question,
                                      const std::string &text) {
  auto plan = planner::parsePlan(text, question.cluster.gpus());
  EXPECT_TRUE(plan.ok()) << plan.message();
  auto candidate = planner::evaluate(question.model, question.cluster,
                                     question.workload, *plan);
  EXPECT_TRUE(candidate.ok()) << candidate.message();
  return *candidate;
}

} // namespace tessera::testing
