// @calibrate, interpreted in fp64, and where scales are folded.
#include "models/Build.h"
#include "models/ScaledInputs.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "compiler/interpreter/Interpreter.h"
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "test/models/ConfigFixture.h"
#include "test/models/ReferenceModel.h"

namespace tessera::models {
namespace {

using interpreter::Tensor;
using interpreter::Tensors;

constexpr int64_t tokens = 9;

class BuildCalibrate : public testing::Test {
protected:
  BuildCalibrate() {
    context.loadDialect<graph::GraphDialect, mlir::func::FuncDialect>();
    recipe.inference.context = tokens;
  }

  void build(const ModelSpec &model) {
    spec = model;
    auto built = buildModel(context, spec, recipe, Mode::Calibrate);
    ASSERT_TRUE(bool(built)) << llvm::toString(built.takeError());
    module = std::move(*built);
    ASSERT_TRUE(mlir::succeeded(mlir::verify(*module)));
  }

  /// The outputs' names, in their order.
  std::vector<std::string> outputs() {
    auto function = module->lookupSymbol<mlir::func::FuncOp>("calibrate");
    std::vector<std::string> names;
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      names.push_back(
          function.getResultAttrOfType<mlir::StringAttr>(i, graph::kOutputAttr)
              .str());
    return names;
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  Recipe recipe;
  ModelSpec spec;
};

} // namespace

TEST_F(BuildCalibrate, SumsWhatTheFirstLayerReads) {
  build(mustRead("llama"));
  std::mt19937_64 random(5);
  auto weights = randomWeights(spec, random);
  Tensors inputs;
  for (const Parameter &each : parameters(spec))
    inputs.emplace_back(each.shape, weights[each.name]);
  Tensor ids({1, tokens});
  std::uniform_int_distribution<int> token(0, int(spec.vocab) - 1);
  for (double &each : ids.data)
    each = token(random);
  inputs.push_back(ids);
  auto results = interpreter::interpret(*module, "calibrate", inputs);
  ASSERT_TRUE(bool(results)) << llvm::toString(results.takeError());

  std::vector<double> magnitude(spec.hidden), square(spec.hidden);
  for (int64_t t = 0; t < tokens; ++t) {
    const double *row = &weights["model.embed_tokens.weight"]
                                [int64_t(ids.data[t]) * spec.hidden];
    double mean = 0;
    for (int64_t c = 0; c < spec.hidden; ++c)
      mean += row[c] * row[c] / double(spec.hidden);
    for (int64_t c = 0; c < spec.hidden; ++c) {
      double x = row[c] / std::sqrt(mean + spec.normEps) *
                 weights["model.layers.0.input_layernorm.weight"][c];
      magnitude[c] += std::fabs(x);
      square[c] += x * x;
    }
  }
  ASSERT_EQ(outputs().front(), "model.layers.0.self_attn.q_proj.magnitude");
  ASSERT_EQ(outputs()[1], "model.layers.0.self_attn.q_proj.square");
  for (int64_t c = 0; c < spec.hidden; ++c) {
    EXPECT_NEAR((*results)[0].data[c], magnitude[c], 1e-6);
    EXPECT_NEAR((*results)[1].data[c], square[c], 1e-6);
  }
}

// What is measured has as many channels as its readers have columns, and what
// comes before as many rows as there are elements.
TEST_F(BuildCalibrate, MeasuresWhatCanBeScaled) {
  for (const char *family : {"llama", "mistral", "qwen2", "qwen3", "gemma",
                             "gemma2", "gemma3_text", "phi3"}) {
    SCOPED_TRACE(family);
    build(mustRead(family));
    std::map<std::string, std::vector<int64_t>> shapes;
    for (const Parameter &each : parameters(spec))
      shapes[each.name] = each.shape;
    std::vector<std::string> names = outputs();
    auto function = module->lookupSymbol<mlir::func::FuncOp>("calibrate");
    auto inputs = scaledInputs(spec);
    ASSERT_TRUE(inputs.ok()) << inputs.message();
    ASSERT_EQ(inputs->size(), size_t(4 * spec.layers));
    ASSERT_EQ(names.size(), 2 * inputs->size());
    for (const auto &[i, input] : llvm::enumerate(*inputs)) {
      const auto channels = int64_t(input.sources.size());
      EXPECT_EQ(names[2 * i], input.measured + ".magnitude");
      EXPECT_EQ(names[2 * i + 1], input.measured + ".square");
      EXPECT_EQ(
          graph::tensorType(function.front().getTerminator()->getOperand(2 * i))
              .getShape(),
          llvm::ArrayRef<int64_t>({channels}));
      for (const std::string &reader : input.readers)
        EXPECT_EQ(shapes.at(reader).at(1), channels) << reader;
      for (const std::string &before : input.before)
        EXPECT_EQ(shapes.at(before).at(0), input.elements) << before;
      EXPECT_EQ(shapes.at(input.before.front()).size(), input.isNorm ? 1u : 2u);
      for (int64_t source : input.sources)
        EXPECT_TRUE(source >= 0 && source < input.elements);
    }
  }
}

TEST_F(BuildCalibrate, NamesWhatHasNoScales) {
  for (const char *family : {"gpt2", "bert", "mixtral", "qwen2_moe"}) {
    auto inputs = scaledInputs(mustRead(family));
    ASSERT_FALSE(inputs.ok()) << family;
    EXPECT_NE(inputs.message().find(family), std::string::npos)
        << inputs.message();
  }
}

} // namespace tessera::models
