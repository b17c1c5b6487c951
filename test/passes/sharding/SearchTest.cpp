// What the search for a strategy looks at, counted instead of timed: a deep
// model's layers are calls of one block, so that it looks at no more than in a
// shallow one, and says the same of both.
#include "passes/sharding/Strategy.h"
#include "test/passes/sharding/RandomModels.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::testing;

namespace {

struct Outcome {
  sharding::Strategy strategy;
  sharding::SearchEffort effort;
};

Outcome search(const std::string &type, int64_t layers, int64_t accumulate) {
  ModelCase drawn;
  drawn.config = models::smallConfig(type);
  drawn.config[type == "gpt2" ? "n_layer" : "num_hidden_layers"] = layers;
  drawn.recipe.dropout.rate = 0.0;
  drawn.recipe.batch = {.micro = 4, .accumulate = accumulate, .sequence = 6};
  OwningOpRef<ModuleOp> module = compileToPrograms(drawn);
  if (!module)
    return ADD_FAILURE() << "no programs", Outcome();
  MLIRContext *context = module->getContext();
  context->loadDialect<dist::DistDialect>();
  auto axis = [&](StringRef name) {
    return dist::AxisAttr::get(context, name, 2, dist::LinkTier::memory);
  };
  sharding::Mesh mesh(StringAttr::get(context, "mesh"),
                      {axis("data"), axis("tensor")});
  sharding::Factors factors(*module);
  if (failed(factors.build()))
    return ADD_FAILURE() << "no factors", Outcome();
  sharding::Congruence classes(*module, factors);
  Outcome outcome;
  FailureOr<sharding::Strategy> strategy =
      chooseStrategy(*module, factors, classes, mesh,
                     sharding::ZeroStage::optimizer, /*opByOp=*/true,
                     outcome.effort);
  if (failed(strategy))
    return ADD_FAILURE() << "no strategy", Outcome();
  outcome.strategy = *strategy;
  return outcome;
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

} // namespace
