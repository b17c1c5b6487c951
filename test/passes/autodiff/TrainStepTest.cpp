// @train_step and @eval_step in double precision, against a plain twin of the
// optimizer and against each other.
#include "test/passes/autodiff/TinyModel.h"
#include <numbers>

using namespace mlir;
using namespace tessera;
using namespace tessera::testing;

namespace {

constexpr int64_t kVocabulary = TinyModel::vocabulary,
                  kTokens = TinyModel::tokens;

OwningOpRef<ModuleOp>
compile(const TinyModel &model, const AutodiffOptions &options,
        recipe::Precision compute = recipe::Precision::Fp32) {
  auto module = parse(model.text());
  EXPECT_TRUE(module);
  runPasses(*module,
            [&](OpPassManager &pm) { buildAutodiffPipeline(pm, options); });
  return module;
}

// State as @init gives it, but for the weights: those are scaled down, so that
// no softmax is flat or saturated.
Named initialState(ModuleOp module) {
  Named state = runProgram(module, "init", {{"seed", Tensor({1}, 17)}});
  for (auto &[name, value] : state)
    if (name != "hyper")
      for (double &element : value.data)
        element *= 0.3;
  return state;
}

// tokens and targets [A, B, T] with unequal numbers of masked targets.
Named batchInputs(int64_t accumulate, int64_t micro, uint64_t seed) {
  Named inputs;
  inputs["tokens"] = randomIds({accumulate, micro, kTokens}, kVocabulary, seed);
  inputs["targets"] =
      randomIds({accumulate, micro, kTokens}, kVocabulary, seed + 1);
  // Sequence s of the step loses its first s targets.
  for (int64_t s = 0; s < accumulate * micro; ++s)
    for (int64_t t = 0; t < std::min(s, kTokens); ++t)
      inputs["targets"].data[s * kTokens + t] = -100;
  inputs["seed"] = Tensor({1}, 5);
  return inputs;
}

Named join(Named a, const Named &b) {
  a.insert(b.begin(), b.end());
  return a;
}

//===--- accumulation -----------------------------------------------------===//

TEST(Accumulation, EqualsTheBigBatch) {
  AutodiffOptions options;
  options.step.lr = 0.01;
  // One step without dropout, one with: its numbers follow the sequence.
  for (double dropout : {0.0, 0.25}) {
    options.step.accumulate = 4;
    auto small = compile({.micro = 1, .dropout = dropout}, options);
    options.step.accumulate = 1;
    auto big = compile({.micro = 4, .dropout = dropout}, options);
    Named state = initialState(*small);
    Named a =
        runProgram(*small, "train_step", join(state, batchInputs(4, 1, 3)));
    Named b = runProgram(*big, "train_step", join(state, batchInputs(1, 4, 3)));
    EXPECT_EQ(a.at("tokens").data[0], 4 * kTokens - 6);
    for (const auto &[name, value] : a)
      EXPECT_LT(relativeError(value, b.at(name)), 1e-9) << name;
    EXPECT_NE(a.at("wte").data, state.at("wte").data);
  }
}

TEST(Accumulation, OfNothingChangesNothingButTheDecay) {
  AutodiffOptions options;
  options.step.accumulate = 2;
  options.step.schedule = recipe::ScheduleKind::Constant;
  options.step.lr = 0.5;
  auto module = compile({}, options);
  Named inputs = join(initialState(*module), batchInputs(2, 2, 3));
  inputs["targets"] = Tensor(inputs["targets"].shape, -100);
  Named result = runProgram(*module, "train_step", inputs);
  EXPECT_EQ(result.at("tokens").data[0], 0);
  EXPECT_EQ(result.at("loss").data[0], 0);
  EXPECT_EQ(result.at("grad_norm").data[0], 0);
  EXPECT_EQ(result.at("n1").data, inputs.at("n1").data);
  double kept = 1 - 0.5 * double(0.1f);
  EXPECT_NEAR(result.at("wo").data[5], inputs.at("wo").data[5] * kept, 1e-15);
}

//===--- a twin of schedule and optimizers --------------------------------===//

/// What torch does, one number at a time.
struct Twin {
  const BuildTrainStepOptions &options;
  Named state;

  static double f(double value) { return static_cast<float>(value); }

  double learningRate(int64_t t) const {
    double lr = f(options.lr), end = f(options.minRatio);
    if (t < options.warmup)
      return lr * double(t + 1) / double(options.warmup);
    if (options.schedule == recipe::ScheduleKind::Constant)
      return lr;
    double length = std::max<double>(1, double(options.total - options.warmup));
    double p = std::min(1.0, double(t - options.warmup) / length);
    double falling = options.schedule == recipe::ScheduleKind::Linear
                         ? 1 - p
                         : (1 + std::cos(std::numbers::pi * p)) / 2;
    return lr * (end + (1 - end) * falling);
  }

  /// Applies mean gradients; returns norm and learning rate.
  std::pair<double, double> step(Named gradients) {
    double squares = 0;
    for (const auto &[name, gradient] : gradients)
      for (double g : gradient.data)
        squares += g * g;
    double norm = std::sqrt(squares), clip = f(options.clip);
    double scale = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0;
    int64_t t = int64_t(state.at("step").data[0]++);
    double lr = learningRate(t);
    for (auto &[name, gradient] : gradients)
      for (int64_t i = 0; i < gradient.size(); ++i)
        update(name, i, gradient.data[i] * scale, lr, t,
               gradient.shape.size() >= 2 ? f(options.weightDecay) : 0.0);
    return {norm, lr};
  }

  void update(const std::string &name, int64_t i, double g, double lr,
              int64_t t, double decay) {
    double &w = state.at(name).data[i];
    if (options.optimizer == recipe::OptimizerKind::AdamW) {
      double &m = state.at(name + ".exp_avg").data[i];
      double &v = state.at(name + ".exp_avg_sq").data[i];
      double b1 = f(options.beta1), b2 = f(options.beta2);
      w *= 1 - lr * decay;
      m = b1 * m + (1 - b1) * g;
      v = b2 * v + (1 - b2) * g * g;
      double c1 = 1 - std::pow(b1, double(t + 1));
      double c2 = 1 - std::pow(b2, double(t + 1));
      w -= lr / c1 * m / (std::sqrt(v) / std::sqrt(c2) + f(options.eps));
      return;
    }
    g += decay * w;
    if (options.momentum != 0) {
      double &buffer = state.at(name + ".momentum_buffer").data[i];
      g = buffer = f(options.momentum) * buffer + g;
    }
    w -= lr * g;
  }
};

// Mean gradients and loss by @gradients alone, microbatch by microbatch.
struct MeanGradients {
  OwningOpRef<ModuleOp> module;
  std::vector<std::string> names;

  explicit MeanGradients(const TinyModel &model) : module(parse(model.text())) {
    runPasses(*module,
              [](OpPassManager &pm) { pm.addPass(createDifferentiate()); });
    auto loss = module->lookupSymbol<func::FuncOp>("loss");
    for (unsigned i = 0; i < loss.getNumArguments(); ++i)
      if (loss.getArgAttr(i, graph::kStateAttr))
        names.push_back(portName(loss.getArgAttrDict(i)));
  }

  static Tensor entry(const Tensor &batch, int64_t index) {
    Tensor result(ArrayRef(batch.shape).drop_front());
    std::copy_n(batch.data.begin() + index * result.size(), result.size(),
                result.data.begin());
    return result;
  }

  std::pair<Named, double> run(const Named &state, const Named &batch) {
    const Tensor &targets = batch.at("targets");
    double count = 0, loss = 0;
    for (double target : targets.data)
      count += target != -100;
    Named sums;
    for (int64_t a = 0; a < targets.shape[0]; ++a) {
      Named inputs = state;
      inputs["tokens"] = entry(batch.at("tokens"), a);
      inputs["targets"] = entry(targets, a);
      inputs["seed"] = scalar(batch.at("seed").data[0]);
      inputs["step"] = scalar(state.at("step").data[0]);
      inputs["offset"] = scalar(double(a * targets.shape[1]));
      inputs["cotangent"] = scalar(1 / count);
      Named result = runProgram(*module, "gradients", inputs);
      loss += result.at("#0").data[0] / count;
      for (auto [i, name] : llvm::enumerate(names)) {
        const Tensor &part = result.at("#" + std::to_string(i + 1));
        Tensor &sum = sums.try_emplace(name, Tensor(part.shape)).first->second;
        for (int64_t j = 0; j < part.size(); ++j)
          sum.data[j] += part.data[j];
      }
    }
    return {sums, loss};
  }
};

void expectTwin(const BuildTrainStepOptions &step) {
  AutodiffOptions options;
  options.step = step;
  TinyModel model;
  auto module = compile(model, options);
  MeanGradients gradients(model);
  Named state = initialState(*module);
  Twin twin{step, state};
  twin.state.erase("hyper");
  for (uint64_t n = 0; n < 5; ++n) {
    Named batch = batchInputs(step.accumulate, model.micro, 10 * n);
    auto [means, loss] = gradients.run(state, batch);
    auto [norm, lr] = twin.step(means);
    Named result = runProgram(*module, "train_step", join(state, batch));
    EXPECT_NEAR(result.at("loss").data[0], loss, 1e-10);
    EXPECT_NEAR(result.at("grad_norm").data[0], norm, 1e-10 * norm);
    EXPECT_NEAR(result.at("lr").data[0], lr, 1e-7 * lr);
    for (const auto &[name, value] : twin.state)
      EXPECT_LT(relativeError(value, result.at(name)), 1e-6)
          << name << " after step " << n;
    for (auto &[name, value] : state)
      if (result.count(name))
        value = result.at(name);
    twin.state = state;
    twin.state.erase("hyper");
  }
  EXPECT_EQ(state.at("step").data[0], 5);
}

TEST(TrainStep, IsAdamW) {
  expectTwin({.accumulate = 2, .lr = 0.02, .warmup = 2, .total = 4});
}

TEST(TrainStep, IsAdamWWithoutClipping) {
  expectTwin({.schedule = recipe::ScheduleKind::Constant,
              .lr = 0.01,
              .beta1 = 0.0,
              .beta2 = 0.999,
              .clip = 0.0});
}

TEST(TrainStep, IsSgd) {
  expectTwin({.optimizer = recipe::OptimizerKind::Sgd,
              .schedule = recipe::ScheduleKind::Linear,
              .accumulate = 2,
              .lr = 0.2,
              .clip = 1e-3,
              .total = 3});
}

TEST(TrainStep, IsSgdWithMomentum) {
  expectTwin({.optimizer = recipe::OptimizerKind::Sgd,
              .lr = 0.1,
              .momentum = 0.9,
              .warmup = 3});
}

// 1 - β^t keeps its relative precision in f32: at β = 0.9999 the plain
// difference loses 12 bits of it in the first steps.
TEST(TrainStep, BiasCorrectionDoesNotCancel) {
  AutodiffOptions options;
  options.step.lr = 0.01;
  options.step.beta2 = 0.9999;
  options.step.clip = 0;
  auto module = compile({}, options);
  Named inputs = join(initialState(*module), batchInputs(1, 2, 3));
  inputs["step"] = Tensor({1}, 6);
  Named exact = runProgram(*module, "train_step", inputs);
  Named rounded =
      runProgram(*module, "train_step", inputs, {.roundToType = true});
  int64_t counted = 0;
  for (int64_t i = 0; i < exact.at("w1").size(); ++i) {
    if (std::abs(exact.at("w1.exp_avg").data[i]) < 1e-3)
      continue;
    ++counted;
    double moved = exact.at("w1").data[i] - inputs.at("w1").data[i];
    EXPECT_GT(std::abs(moved), 1e-3);
    // f32 resolves a weight of this size to 3e-8.
    EXPECT_NEAR(rounded.at("w1").data[i], exact.at("w1").data[i],
                6e-8 + 1e-6 * std::abs(moved));
  }
  EXPECT_GT(counted, exact.at("w1").size() / 4);
}

//===--- precision and evaluation -----------------------------------------===//

TEST(TrainStep, InBf16StaysNearFp64) {
  AutodiffOptions options;
  options.step.accumulate = 2;
  auto exact = compile({}, options);
  auto narrow = compile({}, options, recipe::Precision::Bf16);
  Named inputs = join(initialState(*exact), batchInputs(2, 2, 3));
  Named a = runProgram(*exact, "train_step", inputs);
  Named b = runProgram(*narrow, "train_step", inputs, {.roundToType = true});
  EXPECT_NEAR(a.at("loss").data[0], b.at("loss").data[0], 4e-3);
  // First moments are scaled gradients: their error as vectors.
  for (const auto &[name, value] : a) {
    if (!StringRef(name).ends_with(".exp_avg"))
      continue;
    double error = 0, length = 0;
    for (int64_t i = 0; i < value.size(); ++i) {
      error += std::pow(value.data[i] - b.at(name).data[i], 2);
      length += std::pow(value.data[i], 2);
    }
    EXPECT_LT(std::sqrt(error / length), 0.02) << name;
    EXPECT_GT(error, 0) << name;
  }
}

TEST(EvalStep, IsTheLossWithoutDropout) {
  auto module = compile({}, {});
  auto reference = parse(TinyModel{.dropout = 0.0}.text());
  Named inputs = initialState(*module);
  inputs["tokens"] = randomIds({2, kTokens}, kVocabulary, 1);
  inputs["targets"] = randomIds({2, kTokens}, kVocabulary, 2);
  inputs["targets"].data[4] = -100;
  for (const char *name : {"seed", "step", "offset"})
    inputs[name] = scalar(1);
  Named result = runProgram(*module, "eval_step", inputs);
  Named expected = runProgram(*reference, "loss", inputs);
  EXPECT_EQ(result.at("loss_sum").data, expected.at("loss_sum").data);
  EXPECT_EQ(result.at("tokens").data[0], 2 * kTokens - 1);
}

TEST(EvalStep, OfSeveralMicrobatchesHasTheLossOfEach) {
  AutodiffOptions several;
  several.eval.microbatches = 3;
  auto all = compile({}, several), single = compile({}, {});
  Named state = initialState(*all), batch = batchInputs(3, 2, 1);
  Named result = runProgram(*all, "eval_step", join(state, batch));
  ASSERT_EQ(result.at("loss_sum").data.size(), 3u);
  double count = 0;
  for (int64_t i = 0; i < 3; ++i) {
    Named one = state;
    for (const char *name : {"tokens", "targets"}) {
      auto begin = batch.at(name).data.begin() + i * 2 * kTokens;
      one[name] = Tensor({2, kTokens}, 0);
      one[name].data.assign(begin, begin + 2 * kTokens);
    }
    Named alone = runProgram(*single, "eval_step", one);
    EXPECT_EQ(result.at("loss_sum").data[i], alone.at("loss_sum").data[0]);
    count += alone.at("tokens").data[0];
  }
  EXPECT_EQ(result.at("tokens").data[0], count);
}

TEST(Options, FollowTheRecipe) {
  models::Recipe recipe;
  recipe.optimizer = {.name = models::OptimizerKind::Sgd,
                      .lr = 1,
                      .betas = {2, 3},
                      .eps = 4,
                      .weightDecay = 5,
                      .momentum = 6,
                      .clip = 7};
  recipe.schedule = {.name = models::ScheduleKind::Linear,
                     .warmup = 8,
                     .total = 9,
                     .minRatio = 10};
  recipe.batch.accumulate = 11;
  recipe.recompute = models::Recompute::Selective;
  AutodiffOptions options = AutodiffOptions::fromRecipe(recipe);
  const BuildTrainStepOptions &step = options.step;
  EXPECT_EQ(options.recompute, recipe::Recompute::Selective);
  EXPECT_EQ(step.optimizer, recipe::OptimizerKind::Sgd);
  EXPECT_EQ(step.schedule, recipe::ScheduleKind::Linear);
  EXPECT_EQ(step.accumulate, 11);
  EXPECT_EQ((std::vector<double>{step.lr, step.beta1, step.beta2, step.eps,
                                 step.weightDecay, step.momentum, step.clip,
                                 double(step.warmup), double(step.total),
                                 step.minRatio}),
            (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  // An empty recipe and no options at all are the same program.
  AutodiffOptions empty = AutodiffOptions::fromRecipe({}), none;
  EXPECT_EQ(empty.recompute, none.recompute);
  EXPECT_EQ(empty.step.optimizer, none.step.optimizer);
  EXPECT_EQ(empty.step.schedule, none.step.schedule);
  EXPECT_EQ(empty.step.lr, none.step.lr);
  EXPECT_EQ(empty.step.beta2, none.step.beta2);
  EXPECT_EQ(empty.step.eps, none.step.eps);
  EXPECT_EQ(empty.step.weightDecay, none.step.weightDecay);
  EXPECT_EQ(empty.step.clip, none.step.clip);
  EXPECT_EQ(empty.step.total, none.step.total);
  EXPECT_EQ(empty.step.minRatio, none.step.minRatio);
}

TEST(Init, GivesZeroMomentsAndTheHyperparameters) {
  AutodiffOptions options;
  options.step.lr = 0.125;
  options.step.warmup = 7;
  auto module = compile({}, options);
  Named state = runProgram(*module, "init", {{"seed", Tensor({1}, 17)}});
  EXPECT_EQ(state.at("step").data, std::vector<double>{0});
  EXPECT_EQ(state.at("wa.exp_avg").data, std::vector<double>(8 * 24, 0.0));
  EXPECT_EQ(state.at("wa.exp_avg_sq").data, std::vector<double>(8 * 24, 0.0));
  const std::vector<double> &hyper = state.at("hyper").data;
  ASSERT_EQ(hyper.size(), 16u);
  EXPECT_EQ(hyper[0], 0.125);
  EXPECT_EQ(hyper[7], 7);
  EXPECT_EQ(hyper[8], 1000);
  EXPECT_EQ(hyper[10], 0);
}

} // namespace
