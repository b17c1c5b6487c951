// What the search for a strategy looks at, counted instead of timed: a deep
// model's layers are calls of one block, so that it looks at no more than in a
// shallow one, and says the same of both. And what the solver makes of it.
#include "passes/sharding/OpSearch.h"
#include "passes/sharding/Strategy.h"
#include "passes/sharding/solver/Solve.h"
#include "test/passes/sharding/RandomModels.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::testing;

namespace {

/// A small model and what is known of it before a search.
struct Subject {
  OwningOpRef<ModuleOp> module;
  std::optional<sharding::Factors> factors;
  std::optional<sharding::Congruence> classes;
  std::optional<sharding::Mesh> mesh;

  Subject(const std::string &type, int64_t layers, int64_t accumulate,
          int64_t keyHeads = 0) {
    ModelCase drawn;
    drawn.config = models::smallConfig(type);
    drawn.config[type == "gpt2" ? "n_layer" : "num_hidden_layers"] = layers;
    if (keyHeads)
      drawn.config["num_key_value_heads"] = keyHeads;
    drawn.recipe.dropout.rate = 0.0;
    drawn.recipe.batch = {.micro = 4, .accumulate = accumulate, .sequence = 6};
    module = compileToPrograms(drawn);
    MLIRContext *context = module->getContext();
    context->loadDialect<dist::DistDialect>();
    auto axis = [&](StringRef name) {
      return dist::AxisAttr::get(context, name, 2);
    };
    mesh.emplace(StringAttr::get(context, "mesh"),
                 ArrayRef{axis("data"), axis("tensor")},
                 hardware::defaultRates());
    factors.emplace(*module);
    EXPECT_TRUE(succeeded(factors->build()));
    classes.emplace(*module, *factors);
  }
};

struct Outcome {
  sharding::Strategy strategy;
  sharding::SearchEffort effort;
};

Outcome search(Subject &subject, bool opByOp) {
  Outcome outcome;
  FailureOr<sharding::Strategy> strategy = chooseStrategy(
      *subject.module, *subject.factors, *subject.classes, *subject.mesh,
      {sharding::ZeroStage::optimizer, opByOp}, outcome.effort);
  if (failed(strategy))
    return ADD_FAILURE() << "no strategy", Outcome();
  outcome.strategy = *strategy;
  return outcome;
}

Outcome search(const std::string &type, int64_t layers, int64_t accumulate) {
  Subject subject(type, layers, accumulate);
  return search(subject, true);
}

TEST(Search, LooksAtDeepModelsAsAtShallowOnes) {
  for (const char *type : {"gpt2", "llama"})
    for (int64_t accumulate : {1, 2}) {
      SCOPED_TRACE(std::string(type) + ", microbatches " +
                   std::to_string(accumulate));
      Outcome few = search(type, 3, accumulate),
              many = search(type, 24, accumulate);
      EXPECT_GT(few.effort.strategies, 1u);
      EXPECT_GT(few.effort.decisions, few.effort.strategies);
      EXPECT_EQ(many.effort.strategies, few.effort.strategies);
      EXPECT_NEAR(many.effort.decisions, few.effort.decisions, 10);
      ASSERT_EQ(many.strategy.colors.size(), few.strategy.colors.size());
      for (auto [a, b] : llvm::zip(many.strategy.colors, few.strategy.colors))
        EXPECT_EQ(a.size(), b.size());
    }
}

// A choice costs in the solver's problem what the estimate says of the module
// that is cut so: of what colors say, and of what the solver makes of it.
TEST(Search, StatesWhatTheEstimateSays) {
  for (const char *type : {"gpt2", "llama", "mixtral"})
    for (int64_t keyHeads : {0, 1}) {
      if (keyHeads && type == StringRef("gpt2"))
        continue;
      SCOPED_TRACE(std::string(type) + ", " + std::to_string(keyHeads));
      Subject subject(type, 3, 2, keyHeads);
      sharding::Strategy strategy = search(subject, false).strategy;
      sharding::Shardings shardings(*subject.classes, *subject.mesh, strategy);
      ASSERT_TRUE(succeeded(shardings.build(*subject.module, false)));
      double byColors = estimate(*subject.module, *subject.mesh, shardings, {});
      sharding::OpSearch problem(*subject.module, *subject.classes,
                                 *subject.mesh, shardings, /*axis=*/1, {}, {});
      auto evaluation =
          solver::evaluate(problem.problem(), problem.incumbent());
      EXPECT_TRUE(evaluation.feasible);
      EXPECT_NEAR(problem.seconds(evaluation.cost), byColors, byColors * 1e-5);

      auto solution = solver::solve(problem.problem(), {.steps = 31});
      ASSERT_TRUE(solution.ok());
      EXPECT_LE(solution->cost, evaluation.cost);
      strategy.exceptions = problem.exceptions(solution->choice);
      shardings.restart(strategy);
      ASSERT_TRUE(succeeded(shardings.build(*subject.module, false)));
      double opByOp = estimate(*subject.module, *subject.mesh, shardings, {});
      EXPECT_NEAR(problem.seconds(solution->cost), opByOp, opByOp * 0.02);
    }
}

// Colors' strategy stays where the solver has nothing better, and is the same
// strategy without the solver.
TEST(Search, TakesFromTheSolverWhatIsCheaper) {
  Subject subject("llama", 2, 1, /*keyHeads=*/1);
  Outcome colors = search(subject, false), ops = search(subject, true);
  EXPECT_FALSE(colors.effort.solved);
  EXPECT_FALSE(colors.strategy.exceptions);
  ASSERT_TRUE(ops.effort.solved);
  EXPECT_EQ(ops.strategy.colors, colors.strategy.colors);
  const sharding::SolverEffect &solved = *ops.effort.solved;
  EXPECT_EQ(solved.changed > 0, solved.after < solved.before);
  EXPECT_EQ(solved.changed > 0, ops.strategy.exceptions.has_value());
  EXPECT_LT(solved.after, solved.before);
}

} // namespace
