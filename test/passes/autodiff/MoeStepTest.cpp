// Steps of models with experts, interpreted in double precision: gradients
// against central differences of what they are of, and the same step from one
// large batch and from several small ones, whatever is dropped and balanced.
#include "models/Build.h"
#include "models/HfConfig.h"
#include "test/passes/autodiff/TinyModel.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::testing;
using models::Recipe;
using recipe::BalanceScope;
using recipe::DropPolicy;

namespace {

constexpr int64_t kTokens = 6, kSequences = 4, kVocabulary = 13;

const char *kMixtral = R"({"model_type": "mixtral", "vocab_size": 13,
  "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 2,
  "num_attention_heads": 2, "num_key_value_heads": 1,
  "num_local_experts": 4, "num_experts_per_tok": 2})";

const char *kDots = R"({"model_type": "dots1", "vocab_size": 13,
  "hidden_size": 8, "intermediate_size": 10, "num_hidden_layers": 2,
  "num_attention_heads": 2, "num_key_value_heads": 1,
  "moe_intermediate_size": 5, "n_routed_experts": 8, "n_shared_experts": 1,
  "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2,
  "first_k_dense_replace": 1, "norm_topk_prob": true,
  "routed_scaling_factor": 1.7})";

Recipe recipeOf(int64_t accumulate, const Recipe::Moe &moe) {
  Recipe recipe;
  recipe.batch = {kSequences / accumulate, accumulate, kTokens};
  recipe.optimizer.betas = {0, 0.95};
  recipe.optimizer.clip = 0;
  recipe.moe = moe;
  return recipe;
}

OwningOpRef<ModuleOp> import(const char *config, const Recipe &recipe) {
  auto spec = models::parseHfConfig(config, "config.json");
  EXPECT_TRUE(spec.ok()) << spec.message();
  auto module = models::buildModel(context(), *spec, recipe);
  EXPECT_TRUE(bool(module)) << llvm::toString(module.takeError());
  return std::move(*module);
}

OwningOpRef<ModuleOp> compile(const char *config, const Recipe &recipe) {
  OwningOpRef<ModuleOp> module = import(config, recipe);
  runPasses(*module, [&](OpPassManager &pm) {
    buildAutodiffPipeline(pm, AutodiffOptions::fromRecipe(recipe));
  });
  return module;
}

// Far from @init's small weights, where experts differ by little; the same for
// the same names.
Named stateOf(ModuleOp module) {
  Named state = runProgram(module, "init", {{"seed", Tensor({1}, 17)}});
  for (auto &[name, value] : state) {
    bool isMoment = name.find("exp_avg") != name.npos;
    if (name == "hyper" || name == "step" || isMoment)
      continue;
    std::mt19937_64 engine(std::hash<std::string>()(name));
    std::normal_distribution<double> normal(0, 0.5);
    for (double &element : value.data)
      element = (value.shape.size() == 1 ? 1 : 0) + normal(engine);
  }
  return state;
}

Named batchOf(int64_t accumulate) {
  SmallVector<int64_t> shape{accumulate, kSequences / accumulate, kTokens};
  Named inputs;
  inputs["tokens"] = randomIds(shape, kVocabulary, 3);
  inputs["targets"] = randomIds(shape, kVocabulary, 4);
  // Sequence s loses its first s targets.
  for (int64_t s = 0; s < kSequences; ++s)
    for (int64_t t = 0; t < s; ++t)
      inputs["targets"].data[s * kTokens + t] = -100;
  inputs["seed"] = Tensor({1}, 5);
  return inputs;
}

Named step(ModuleOp module, int64_t accumulate) {
  Named inputs = stateOf(module);
  for (auto &[name, value] : batchOf(accumulate))
    inputs[name] = value;
  return runProgram(module, "train_step", inputs);
}

struct Case {
  const char *name, *config;
  Recipe::Moe moe;
};

void PrintTo(const Case &test, std::ostream *os) { *os << test.name; }

const Case kCases[] = {
    {"MixtralSequence", kMixtral, {BalanceScope::Sequence, 0.4, 0.05}},
    {"MixtralGlobal", kMixtral, {BalanceScope::Global, 0.4, 0.05}},
    {"MixtralDropsByPosition",
     kMixtral,
     {BalanceScope::Sequence, 0.4, 0.05, 0, 0.7, DropPolicy::Position}},
    {"MixtralDropsByProbability",
     kMixtral,
     {BalanceScope::Global, 0.4, 0, 0, 0.7, DropPolicy::Probability}},
    {"DotsSequence", kDots, {BalanceScope::Sequence, 0.4, 0.05, 0.01}},
    {"DotsGlobal", kDots, {BalanceScope::Global, 0.4, 0.05, 0.01, 0.9}},
    {"DotsByBiasAlone", kDots, {BalanceScope::Sequence, 0, 0, 0.01}},
};

class MoeStep : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(All, MoeStep, ::testing::ValuesIn(kCases),
                         [](const auto &info) {
                           return std::string(info.param.name);
                         });

TEST_P(MoeStep, AccumulatingEqualsTheBigBatch) {
  auto big = compile(GetParam().config, recipeOf(1, GetParam().moe));
  Named expected = step(*big, 1);
  for (int64_t accumulate : {2, 4}) {
    auto small =
        compile(GetParam().config, recipeOf(accumulate, GetParam().moe));
    Named actual = step(*small, accumulate);
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto &[name, value] : actual)
      EXPECT_LT(relativeError(value, expected.at(name)), 1e-9)
          << name << " of " << accumulate << " microbatches";
  }
}

// What a microbatch alone is balanced for depends on how a batch is cut: the
// comparison above would see it.
TEST(MoeStepScope, OfMicrobatchesDependsOnThem) {
  Recipe::Moe moe{BalanceScope::Microbatch, 0.4, 0};
  auto big = compile(kMixtral, recipeOf(1, moe));
  auto small = compile(kMixtral, recipeOf(4, moe));
  std::string router = "model.layers.0.block_sparse_moe.gate.weight.exp_avg";
  EXPECT_GT(relativeError(step(*small, 4).at(router), step(*big, 1).at(router)),
            1e-4);
}

// Mean loss of unmasked tokens, and penalties of all tokens.
double objective(ModuleOp imported, Named inputs) {
  Named results = runProgram(imported, "loss", inputs);
  double unmasked = 0;
  for (double target : inputs.at("targets").data)
    unmasked += target != -100;
  double sum = results.at("loss_sum").data[0] / unmasked;
  if (auto penalty = results.find("penalty_sum"); penalty != results.end())
    sum += penalty->second.data[0] / double(kSequences * kTokens);
  return sum;
}

TEST_P(MoeStep, GradientsAreCentralDifferences) {
  Recipe recipe = recipeOf(1, GetParam().moe);
  auto imported = import(GetParam().config, recipe),
       compiled = compile(GetParam().config, recipe);
  Named state = stateOf(*compiled), after = step(*compiled, 1);
  Named inputs = batchOf(1);
  for (const char *name : {"tokens", "targets"})
    inputs[name].shape = {kSequences, kTokens};
  for (const char *name : {"seed", "step", "offset"})
    inputs[name] = Tensor({}, 0.0);
  for (auto &[name, value] : state)
    if (state.count(name + ".exp_avg") ||
        name.find("correction_bias") != name.npos)
      inputs[name] = value;
  std::mt19937_64 engine(9);
  std::normal_distribution<double> normal;
  for (auto &[name, gradient] : after) {
    size_t suffix = name.find(".exp_avg");
    if (suffix == name.npos || name.find("exp_avg_sq") != name.npos)
      continue;
    std::string parameter = name.substr(0, suffix);
    double analytic = 0, moved[2];
    Tensor direction(gradient.shape);
    for (int64_t i = 0; i < gradient.size(); ++i) {
      direction.data[i] = normal(engine);
      analytic += direction.data[i] * gradient.data[i];
    }
    constexpr double h = 1e-6;
    for (int side : {0, 1}) {
      Named there = inputs;
      for (int64_t i = 0; i < direction.size(); ++i)
        there[parameter].data[i] += (side ? h : -h) * direction.data[i];
      moved[side] = objective(*imported, there);
    }
    double numeric = (moved[1] - moved[0]) / (2 * h);
    EXPECT_NEAR(analytic, numeric, 2e-6 * (1 + std::abs(numeric))) << parameter;
  }
}

// Biases follow loads, have no moments, and are given back where nothing else
// is told of them.
TEST(MoeStepBias, FollowsTheLoadOfTheWholeStep) {
  Recipe recipe =
      recipeOf(2, {BalanceScope::Sequence, 0, 0, /*biasRate=*/0.125});
  auto module = compile(kDots, recipe);
  std::string name = "model.layers.1.mlp.gate.e_score_correction_bias";
  Named before = stateOf(*module), after = step(*module, 2);
  EXPECT_FALSE(before.count(name + ".exp_avg"));
  int64_t up = 0, down = 0;
  for (int64_t e = 0; e < 8; ++e) {
    double moved = after.at(name).data[e] - before.at(name).data[e];
    EXPECT_TRUE(moved == 0 || std::abs(std::abs(moved) - 0.125) < 1e-12)
        << moved;
    up += moved > 0;
    down += moved < 0;
  }
  EXPECT_GT(up, 0);
  EXPECT_GT(down, 0);
}

// Routers stay in f32, and what they decide, when all else is bf16.
TEST(MoeStepPrecision, RoutersStayWide) {
  Recipe recipe = recipeOf(2, {});
  for (const char *config : {kMixtral, kDots}) {
    OwningOpRef<ModuleOp> module = import(config, recipe);
    runPasses(*module, [&](OpPassManager &pm) {
      buildPrecisionPipeline(pm, recipe::Precision::Bf16);
      buildAutodiffPipeline(pm, AutodiffOptions::fromRecipe(recipe));
    });
    int64_t choices = 0, rows = 0;
    module->walk([&](graph::TopKOp op) {
      EXPECT_TRUE(op.getScores().getType().getElementType().isF32());
      ++choices;
    });
    module->walk([&](graph::CombineRowsOp op) {
      EXPECT_TRUE(op.getInput().getType().getElementType().isBF16());
      if (op.getWeights()) {
        EXPECT_TRUE(
            graph::tensorType(op.getWeights()).getElementType().isF32());
        ++rows;
      }
    });
    EXPECT_GT(choices, 0);
    EXPECT_GT(rows, 0);
  }
}

} // namespace
