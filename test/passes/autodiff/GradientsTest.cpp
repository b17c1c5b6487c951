// @gradients of whole models in double precision: against central differences,
// and under every recomputation policy.
#include "models/Build.h"
#include "models/HfConfig.h"
#include "test/passes/autodiff/TinyModel.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::testing;

namespace {

constexpr recipe::Recompute kPolicies[] = {recipe::Recompute::None,
                                           recipe::Recompute::Selective,
                                           recipe::Recompute::Full};

Named lossInputs(ModuleOp module, int64_t vocabulary, int64_t batch,
                 int64_t tokens) {
  Named inputs = randomParameters(module, "loss", 3);
  inputs["tokens"] = randomIds({batch, tokens}, vocabulary, 5);
  inputs["targets"] = randomIds({batch, tokens}, vocabulary, 7);
  inputs["targets"].data[3] = -100;
  inputs["seed"] = scalar(42);
  inputs["step"] = scalar(9);
  inputs["offset"] = scalar(0);
  inputs["cotangent"] = scalar(1);
  return inputs;
}

// The directional derivative of the loss along one random direction for each
// parameter, twice: from the gradient, and from two evaluations of the loss.
void expectGradients(ModuleOp module, Named inputs) {
  Named gradients = runProgram(module, "gradients", inputs);
  auto loss = module.lookupSymbol<func::FuncOp>("loss");
  unsigned index = 0;
  std::mt19937_64 engine(13);
  std::normal_distribution<double> normal;
  for (unsigned i = 0; i < loss.getNumArguments(); ++i) {
    if (!loss.getArgAttr(i, graph::kStateAttr))
      continue;
    std::string name = portName(loss.getArgAttrDict(i));
    const Tensor &gradient = gradients.at("#" + std::to_string(++index));
    Tensor middle = inputs.at(name), direction = middle;
    for (double &value : direction.data)
      value = normal(engine);
    constexpr double step = 1e-5;
    auto lossAt = [&](double along) {
      for (int64_t j = 0; j < middle.size(); ++j)
        inputs[name].data[j] = middle.data[j] + along * direction.data[j];
      return runProgram(module, "loss", inputs).at("loss_sum").data[0];
    };
    double numeric = (lossAt(step) - lossAt(-step)) / (2 * step);
    inputs[name] = middle;
    double analytic = 0;
    for (int64_t j = 0; j < middle.size(); ++j)
      analytic += gradient.data[j] * direction.data[j];
    EXPECT_NEAR(analytic, numeric, 1e-6 * (1 + std::abs(numeric))) << name;
    EXPECT_NE(analytic, 0.0) << name;
  }
  EXPECT_EQ(index, gradients.size() - 1);
  EXPECT_NEAR(gradients.at("#0").data[0],
              runProgram(module, "loss", inputs).at("loss_sum").data[0], 1e-12);
}

TEST(Gradients, MatchCentralDifferences) {
  auto module = parse(TinyModel().text());
  ASSERT_TRUE(module);
  runPasses(*module,
            [](OpPassManager &pm) { pm.addPass(createDifferentiate()); });
  expectGradients(*module, lossInputs(*module, TinyModel::vocabulary, 2,
                                      TinyModel::tokens));
}

TEST(Gradients, ScaleWithTheCotangent) {
  auto module = parse(TinyModel().text());
  runPasses(*module,
            [](OpPassManager &pm) { pm.addPass(createDifferentiate()); });
  Named inputs =
      lossInputs(*module, TinyModel::vocabulary, 2, TinyModel::tokens);
  Named one = runProgram(*module, "gradients", inputs);
  inputs["cotangent"] = scalar(-0.5);
  Named half = runProgram(*module, "gradients", inputs);
  for (unsigned i = 1; i < one.size(); ++i) {
    std::string name = "#" + std::to_string(i);
    for (double &value : one[name].data)
      value *= -0.5;
    EXPECT_LT(relativeError(one[name], half[name]), 1e-12) << name;
  }
  EXPECT_EQ(one["#0"].data, half["#0"].data);
}

// Every family that a config.json can ask for, two layers of it.
TEST(Gradients, MatchCentralDifferencesForEveryFamily) {
  for (
      const char *config :
      {R"({"model_type": "gpt2", "vocab_size": 17, "n_positions": 9, "n_embd": 12, "n_layer": 2, "n_head": 3})",
       R"({"model_type": "llama", "vocab_size": 17, "hidden_size": 12, "intermediate_size": 10, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 16, "rope_theta": 10000.0})",
       R"({"model_type": "qwen3", "vocab_size": 17, "hidden_size": 12, "intermediate_size": 10, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 16, "rope_theta": 10000.0, "tie_word_embeddings": true})"}) {
    SCOPED_TRACE(config);
    StatusOr<models::ModelSpec> spec =
        models::parseHfConfig(config, "config.json");
    ASSERT_TRUE(spec.ok()) << spec.message();
    models::Recipe recipe;
    recipe.batch.micro = 2;
    recipe.batch.sequence = 6;
    recipe.dropout.rate = 0.2;
    if (std::string(config).find("gpt2") == std::string::npos)
      recipe.dropout.rate.reset();
    auto module = models::buildModel(context(), *spec, recipe);
    ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
    runPasses(**module,
              [](OpPassManager &pm) { pm.addPass(createDifferentiate()); });
    expectGradients(**module, lossInputs(**module, 17, 2, 6));
  }
}

// In fp64 and, where bf16 rounds on the way, in rounded arithmetic too.
void expectEqualPolicies(recipe::Precision compute,
                         const interpreter::Options &options) {
  std::vector<Named> results;
  for (recipe::Recompute policy : kPolicies) {
    auto module = parse(TinyModel().text());
    runPasses(*module, [&](OpPassManager &pm) {
      buildPrecisionPipeline(pm, compute);
      pm.addPass(createDifferentiate({policy}));
      pm.addPass(createF32WeightGradients());
      pm.addPass(createCanonicalizerPass());
    });
    results.push_back(runProgram(
        *module, "gradients",
        lossInputs(*module, TinyModel::vocabulary, 2, TinyModel::tokens),
        options));
  }
  for (const auto &[name, value] : results[0]) {
    EXPECT_EQ(value.data, results[1].at(name).data) << name;
    EXPECT_EQ(value.data, results[2].at(name).data) << name;
  }
}

TEST(Recompute, GradientsAreBitwiseEqual) {
  expectEqualPolicies(recipe::Precision::Fp32, {});
  expectEqualPolicies(recipe::Precision::Fp32, {.roundToType = true});
  expectEqualPolicies(recipe::Precision::Bf16, {.roundToType = true});
}

int64_t bytes(TypeRange types) {
  int64_t sum = 0;
  for (Type type : types) {
    auto tensor = cast<RankedTensorType>(type);
    sum += tensor.getNumElements() *
           llvm::divideCeil(tensor.getElementTypeBitWidth(), 8);
  }
  return sum;
}

// What a block hands from its forward to its backward function.
int64_t savedBytes(recipe::Recompute policy, recipe::Precision compute) {
  auto module = parse(TinyModel().text());
  runPasses(*module, [&](OpPassManager &pm) {
    buildPrecisionPipeline(pm, compute);
    pm.addPass(createDifferentiate({policy}));
  });
  auto forward = module->lookupSymbol<func::FuncOp>("layer.forward");
  return bytes(TypeRange(forward.getResultTypes()).drop_front());
}

TEST(Recompute, SavesLessTheMoreIsRecomputed) {
  for (recipe::Precision compute :
       {recipe::Precision::Fp32, recipe::Precision::Bf16}) {
    int64_t none = savedBytes(recipe::Recompute::None, compute);
    int64_t selective = savedBytes(recipe::Recompute::Selective, compute);
    EXPECT_EQ(savedBytes(recipe::Recompute::Full, compute), 0);
    EXPECT_GT(selective, 0);
    EXPECT_GT(none, selective);
  }
}

// All that is saved is bf16 but the log-sum-exp of attention.
TEST(Recompute, HalfTheBytesInBf16) {
  int64_t lse = 2 * 2 * 5 * 4;
  for (recipe::Recompute policy :
       {recipe::Recompute::None, recipe::Recompute::Selective})
    EXPECT_LE(savedBytes(policy, recipe::Precision::Bf16) - lse,
              (savedBytes(policy, recipe::Precision::Fp32) - lse) / 2);
}

} // namespace
