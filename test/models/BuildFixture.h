// Builds a spec's module and runs its functions in fp64, against
// ReferenceModel.
#pragma once
#include <random>

#include <gtest/gtest.h>

#include "compiler/interpreter/Interpreter.h"
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "models/Build.h"
#include "test/models/ConfigFixture.h"
#include "test/models/ReferenceModel.h"

namespace tessera::models {

using interpreter::Tensor;
using interpreter::Tensors;
using nlohmann::json;

inline constexpr int64_t batch = 2, length = 7;
// The interpreter computes in fp64, but constants of an f32 graph (scales, eps,
// angles) were rounded when they were made: 2^-24, times what depth adds; of
// the largest logit of a token where that is above 1.
inline constexpr double tolerance = 1e-6;

class Build : public testing::Test {
protected:
  Build() {
    context.loadDialect<graph::GraphDialect, mlir::func::FuncDialect>();
    recipe.batch.micro = batch;
    recipe.batch.sequence = length;
    recipe.dropout.rate = 0.0;
  }

  mlir::ModuleOp build(const ModelSpec &spec) {
    auto built = buildModel(context, spec, recipe);
    if (!built)
      throw std::runtime_error(llvm::toString(built.takeError()));
    module = std::move(*built);
    EXPECT_TRUE(mlir::succeeded(mlir::verify(*module)));
    return *module;
  }

  void randomize(const ModelSpec &spec) {
    std::mt19937_64 random(11);
    weights = randomWeights(spec, random);
    std::uniform_int_distribution<int> token(0, int(spec.vocab) - 1);
    tokens.assign(batch, {});
    targets.assign(batch, {});
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t t = 0; t < length; ++t) {
        tokens[size_t(b)].push_back(token(random));
        targets[size_t(b)].push_back(t % 3 == b ? -100 : token(random));
      }
  }

  Tensors parameterInputs(const ModelSpec &spec) {
    Tensors inputs;
    for (const Parameter &each : parameters(spec))
      inputs.emplace_back(each.shape, weights[each.name]);
    return inputs;
  }
  static Tensor ids(const std::vector<std::vector<int>> &rows) {
    std::vector<double> values;
    for (const auto &row : rows)
      values.insert(values.end(), row.begin(), row.end());
    return Tensor({int64_t(rows.size()), length}, values);
  }
  Tensors run(llvm::StringRef function, const Tensors &inputs) {
    auto results = interpreter::interpret(*module, function, inputs);
    if (!results)
      throw std::runtime_error(llvm::toString(results.takeError()));
    return std::move(*results);
  }
  /// All results of @loss.
  Tensors runLoss(const ModelSpec &spec, double seed = 1, double step = 0,
                  double offset = 0) {
    Tensors inputs = parameterInputs(spec);
    inputs.push_back(ids(tokens));
    inputs.push_back(ids(targets));
    for (double each : {seed, step, offset})
      inputs.emplace_back(llvm::ArrayRef<int64_t>(), each);
    return run("loss", inputs);
  }
  double loss(const ModelSpec &spec, double seed = 1, double step = 0,
              double offset = 0) {
    return runLoss(spec, seed, step, offset)[0].data[0];
  }

  /// Builds `spec` and holds logits and loss against the reference.
  void expectReference(const ModelSpec &spec) {
    build(spec);
    randomize(spec);
    ReferenceModel reference(spec, weights);
    Tensors inputs = parameterInputs(spec);
    inputs.push_back(ids({tokens[0]}));
    Tensor logits = run("logits", inputs)[0];
    double expectedLoss = 0;
    for (int64_t b = 0; b < batch; ++b) {
      auto expected = reference.logits(tokens[size_t(b)]);
      for (int64_t t = 0; t < length; ++t) {
        double sum = 0, largest = 1;
        for (double each : expected[size_t(t)])
          largest = std::max(largest, std::abs(each));
        for (int64_t v = 0; v < spec.vocab; ++v) {
          double value = expected[size_t(t)][size_t(v)];
          sum += std::exp(value);
          if (b == 0)
            ASSERT_NEAR(logits.at({0, t, v}), value, tolerance * largest);
        }
        int target = targets[size_t(b)][size_t(t)];
        if (target != -100)
          expectedLoss += std::log(sum) - expected[size_t(t)][size_t(target)];
      }
    }
    EXPECT_NEAR(loss(spec), expectedLoss, batch * length * tolerance);
  }

  template <typename Op> int64_t count() {
    int64_t total = 0;
    module->walk([&](Op) { ++total; });
    return total;
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  Recipe recipe;
  std::map<std::string, std::vector<double>> weights;
  std::vector<std::vector<int>> tokens, targets;
};

} // namespace tessera::models
