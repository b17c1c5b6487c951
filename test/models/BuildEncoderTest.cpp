// An encoder's programs, interpreted in fp64: a text's vector is that of
// ReferenceEncoder, alone and beside texts of other lengths, whatever stands
// in the places that pad it. Likewise a reward model's: a text's score is the
// last logit of ReferenceModel with the row of scores as its head.
#include "models/Build.h"

#include <random>

#include <gtest/gtest.h>

#include "compiler/interpreter/Interpreter.h"
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "test/models/ConfigFixture.h"
#include "test/models/ReferenceEncoder.h"
#include "test/models/ReferenceModel.h"

namespace tessera::models {
namespace {

using interpreter::Tensor;
using interpreter::Tensors;

constexpr double tolerance = 1e-6; // see BuildFixture.h

class BuildEncoder : public testing::Test {
protected:
  BuildEncoder() {
    context.loadDialect<graph::GraphDialect, mlir::func::FuncDialect>();
    recipe.inference = {/*context=*/40, /*batch=*/3, 256, /*page=*/16, 0};
    recipe.inference.pooling = Pooling::Mean;
    recipe.inference.normalize = Normalize::None;
  }

  void build(const ModelSpec &model) {
    spec = model;
    auto built = buildModel(context, spec, recipe, Mode::Infer);
    ASSERT_TRUE(bool(built)) << llvm::toString(built.takeError());
    module = std::move(*built);
    ASSERT_TRUE(mlir::succeeded(mlir::verify(*module)));
    std::mt19937_64 random(7);
    weights = randomWeights(spec, random);
  }

  std::vector<int> text(size_t length) {
    std::uniform_int_distribution<int> token(0, int(spec.vocab) - 1);
    std::vector<int> tokens;
    while (tokens.size() < length)
      tokens.push_back(token(draws));
    return tokens;
  }

  /// Rows without a text have length 0; `filler` stands where no token is.
  Tensor run(int64_t tokens, const std::vector<std::vector<int>> &texts,
             int filler) {
    auto batch = int64_t(texts.size());
    Tensor ids({batch, tokens}), lengths({batch});
    std::fill(ids.data.begin(), ids.data.end(), filler);
    for (int64_t b = 0; b < batch; ++b) {
      const std::vector<int> &row = texts[size_t(b)];
      lengths.data[b] = double(row.size());
      for (size_t t = 0; t < row.size(); ++t)
        ids.at({b, int64_t(t)}) = row[t];
    }
    Tensors inputs;
    for (const Parameter &each : parameters(spec))
      inputs.emplace_back(each.shape, weights[each.name]);
    inputs.push_back(ids);
    inputs.push_back(lengths);
    std::string program =
        "embed_" + std::to_string(batch) + "x" + std::to_string(tokens);
    auto results = interpreter::interpret(*module, program, inputs);
    if (!results)
      throw std::runtime_error(llvm::toString(results.takeError()));
    return results->front();
  }

  void expectVector(const Tensor &vectors, int64_t row,
                    const std::vector<int> &tokens) {
    ReferenceEncoder reference(spec, weights);
    auto expected = reference.vector(tokens, recipe.inference.pooling,
                                     recipe.inference.normalize);
    for (int64_t i = 0; i < spec.hidden; ++i)
      ASSERT_NEAR(vectors.at({row, i}), expected[size_t(i)], tolerance)
          << tokens.size() << " tokens, element " << i;
  }

  void expectReference(const ModelSpec &model) {
    build(model);
    auto shortOne = text(1), middle = text(9), full = text(32), late = text(40);
    expectVector(run(32, {middle}, 0), 0, middle);
    expectVector(run(48, {late}, 0), 0, late);
    for (int filler : {0, int(spec.vocab) - 1}) {
      Tensor mixed = run(32, {full, shortOne, middle}, filler);
      expectVector(mixed, 0, full);
      expectVector(mixed, 1, shortOne);
      expectVector(mixed, 2, middle);
      expectVector(run(48, {{}, late, {}}, filler), 1, late);
    }
  }

  void expectScores(ModelSpec model) {
    recipe.inference.pooling = Pooling::Model;
    recipe.inference.normalize = Normalize::Model;
    model.hasScore = true;
    build(model);
    auto headed = weights;
    headed["lm_head.weight"] = weights.at("score.weight");
    model.tieWordEmbeddings = false;
    model.logitCap.reset();
    const ReferenceModel reference(model, headed);
    const std::vector<std::vector<int>> texts = {text(32), text(1), text(9)};
    for (int filler : {0, int(model.vocab) - 1}) {
      const Tensor scores = run(32, texts, filler);
      for (size_t row = 0; row < texts.size(); ++row)
        EXPECT_NEAR(scores.at({int64_t(row), 0}),
                    reference.logits(texts[row]).back()[0], tolerance)
            << name(model.family) << ", " << texts[row].size() << " tokens";
    }
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  Recipe recipe;
  ModelSpec spec;
  std::map<std::string, std::vector<double>> weights;
  std::mt19937_64 draws{3};
};

TEST_F(BuildEncoder, MeanOfTokens) { expectReference(mustRead("bert")); }

TEST_F(BuildEncoder, OtherPoolings) {
  for (Pooling pooling : {Pooling::Cls, Pooling::Max, Pooling::MeanSqrt})
    for (Normalize normalize : {Normalize::None, Normalize::L2}) {
      recipe.inference.pooling = pooling;
      recipe.inference.normalize = normalize;
      expectReference(mustRead("bert", {{"hidden_act", "relu"}}));
    }
}

// Buckets are whole pages, so that the longest has more rows than the table of
// positions.
TEST_F(BuildEncoder, FewerPositionsThanTheLastBucket) {
  expectReference(mustRead("bert", {{"max_position_embeddings", 40}}));
}

TEST_F(BuildEncoder, HasBucketsUpToTheContext) {
  ModelSpec model = mustRead("bert", {{"max_position_embeddings", 512}});
  recipe.inference.context = 200;
  recipe.inference.page = 64;
  recipe.inference.batch = 8;
  std::vector<EncodeBucket> expected;
  for (int64_t tokens : {32, 64, 128, 256}) {
    expected.push_back({1, tokens});
    expected.push_back({8, tokens});
  }
  EXPECT_EQ(encodeBuckets(model, recipe), expected);
  recipe.inference.context = 20;
  recipe.inference.batch = 1;
  EXPECT_EQ(encodeBuckets(model, recipe), (std::vector<EncodeBucket>{{1, 20}}));
}

TEST_F(BuildEncoder, ScoresOfRewardModels) {
  for (const char *family : {"gpt2", "llama", "gemma2", "qwen2_moe"})
    expectScores(mustRead(family));
  // Windows that hide most tokens, in every layer and in some.
  expectScores(mustRead("mistral", {{"sliding_window", 5}}));
  expectScores(mustRead("gemma3_text", {{"sliding_window", 5}}));
}

TEST_F(BuildEncoder, IsNotTrained) {
  EXPECT_NE(checkRecipe(recipe, mustRead("bert"), Mode::Train)
                .message()
                .find("bert is an encoder"),
            std::string::npos);
}

TEST_F(BuildEncoder, PoolingIsForEncodersAndMustBeKnown) {
  EXPECT_FALSE(checkRecipe(recipe, mustRead("gpt2"), Mode::Infer).ok());
  recipe.inference.pooling = Pooling::Model;
  EXPECT_FALSE(checkRecipe(recipe, mustRead("bert"), Mode::Infer).ok());
}

} // namespace
} // namespace tessera::models
