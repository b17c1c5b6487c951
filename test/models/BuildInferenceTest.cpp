// Programs over a cache, interpreted in fp64: a text that is read in chunks and
// then continued token by token, in a batch with others and without, has the
// logits that ReferenceModel gives for it at once. What no token has written in
// the cache is not a number.
#include "models/Build.h"

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

constexpr int64_t page = 4, pages = 13, chunk = 5, perSequence = 6;
constexpr double tolerance = 1e-6; // see BuildTest.cpp

struct Text {
  std::vector<int> tokens;
  std::vector<int> pages; ///< in the cache, in the text's order
  int64_t length = 0;     ///< tokens that the cache holds
  int state = 0;          ///< the slot of its recurrent states
};

class BuildInference : public testing::Test {
protected:
  BuildInference() {
    context.loadDialect<graph::GraphDialect, mlir::func::FuncDialect>();
    recipe.inference = {/*context=*/22, /*batch=*/2, chunk, page, pages};
  }

  void build(const ModelSpec &model) {
    spec = model;
    auto built = buildModel(context, spec, recipe, Mode::Infer);
    ASSERT_TRUE(bool(built)) << llvm::toString(built.takeError());
    module = std::move(*built);
    ASSERT_TRUE(mlir::succeeded(mlir::verify(*module)));
    std::mt19937_64 random(11);
    weights = randomWeights(spec, random);
    caches.clear();
    for (llvm::ArrayRef<int64_t> shape : cacheShapes()) {
      Tensor empty(shape);
      std::fill(empty.data.begin(), empty.data.end(), std::nan(""));
      caches.push_back(empty);
    }
    std::uniform_int_distribution<int> token(0, int(spec.vocab) - 1);
    for (Text *text : {&first, &second}) {
      text->length = 0;
      text->tokens.clear();
      for (int t = 0; t < 22; ++t)
        text->tokens.push_back(token(random));
    }
    first.pages = {7, 0, 12, 3, 9, 1};
    second.pages = {2, 11, 5, 4, 6, 8};
    first.state = 1;
  }

  /// Of the caches, in the order in which programs take them.
  std::vector<llvm::ArrayRef<int64_t>> cacheShapes() {
    auto decode = module->lookupSymbol<mlir::func::FuncOp>("decode_1");
    std::vector<llvm::ArrayRef<int64_t>> shapes;
    for (unsigned i = 0; i < decode.getNumArguments(); ++i) {
      auto role = decode.getArgAttrOfType<graph::RoleAttr>(i, graph::kRoleAttr);
      if (role && (role.getValue() == graph::Role::cache ||
                   role.getValue() == graph::Role::recurrent))
        shapes.push_back(
            mlir::cast<mlir::RankedTensorType>(decode.getArgumentTypes()[i])
                .getShape());
    }
    return shapes;
  }

  /// Runs `count` more tokens of each text (null: none in its place).
  Tensor run(const std::string &program, std::vector<Text *> texts,
             int64_t count, int64_t tokens) {
    auto batch = int64_t(texts.size());
    Tensor ids({batch, tokens}), slots({batch, tokens}),
        table({batch, perSequence}), starts({batch}), lengths({batch}),
        states({batch});
    std::fill(states.data.begin(), states.data.end(), -1);
    std::fill(slots.data.begin(), slots.data.end(), -1);
    for (int64_t b = 0; b < batch; ++b) {
      Text *text = texts[size_t(b)];
      if (!text)
        continue;
      starts.data[b] = double(text->length);
      states.data[b] = text->state;
      for (int64_t t = 0; t < count; ++t, ++text->length) {
        ids.at({b, t}) = text->tokens[size_t(text->length)];
        slots.at({b, t}) = double(text->pages[text->length / page] * page +
                                  text->length % page);
      }
      lengths.data[b] = double(text->length);
      for (int64_t i = 0; i < perSequence; ++i)
        table.at({b, i}) =
            i * page < text->length ? text->pages[size_t(i)] : -1;
    }
    Tensors inputs;
    for (const Parameter &each : parameters(spec))
      inputs.emplace_back(each.shape, weights[each.name]);
    inputs.insert(inputs.end(), caches.begin(), caches.end());
    for (const Tensor &each : {ids, slots, table, starts, lengths})
      inputs.push_back(each);
    if (spec.stateSpace)
      inputs.push_back(states);
    if (tokens > 1)
      inputs.emplace_back(llvm::ArrayRef<int64_t>{batch}, double(count - 1));
    for (Tensor &each : likeliest(batch))
      inputs.push_back(std::move(each));
    auto results = interpreter::interpret(*module, program, inputs);
    if (!results)
      throw std::runtime_error(llvm::toString(results.takeError()));
    std::copy_n(results->begin(), caches.size(), caches.begin());
    const Tensor &logits = (*results)[caches.size()];
    expectLikeliest(results->back(), logits);
    return logits;
  }

  /// What chooses the likeliest token of each row.
  Tensors likeliest(int64_t batch) const {
    const int64_t words = (spec.vocab + 511) / 512 * 16,
                  changes = std::min<int64_t>(spec.vocab, 1024);
    return {Tensor({batch, words}, -1), Tensor({batch, changes}, -1),
            Tensor({batch, changes, 4}), Tensor({batch, 2}),
            Tensor({batch, 4})};
  }
  static void expectLikeliest(const Tensor &tokens, const Tensor &logits) {
    for (int64_t row = 0; row < tokens.size(); ++row) {
      auto first = logits.data.begin() + row * logits.shape[1];
      auto best = std::max_element(first, first + logits.shape[1]);
      ASSERT_GE(tokens.data[row], 0); // as where there is none
      // Where two are as near as floats, either may be it.
      EXPECT_NEAR(first[int64_t(tokens.data[row])], *best, 1e-6);
    }
  }

  void expectLogits(const Tensor &logits, int64_t row, const Text &text) {
    ReferenceModel reference(spec, weights);
    reference.roundsKeysAndValues = recipe.inference.kv == KvKind::Int8;
    auto expected = reference.logits(text.tokens)[size_t(text.length - 1)];
    for (int64_t v = 0; v < spec.vocab; ++v)
      ASSERT_NEAR(logits.at({row, v}), expected[size_t(v)], tolerance)
          << "after " << text.length << " tokens";
  }

  void expectReference(const ModelSpec &model) {
    build(model);
    for (int64_t count : {5, 5, 3})
      expectLogits(run("prefill_5", {&first}, count, chunk), 0, first);
    expectLogits(run("prefill_5", {&second}, 2, chunk), 0, second);
    for (int turn = 0; turn < 4; ++turn) {
      Tensor logits = run("decode_2", {&second, &first}, 1, 1);
      expectLogits(logits, 0, second);
      expectLogits(logits, 1, first);
    }
    expectLogits(run("decode_1", {&first}, 1, 1), 0, first);
    expectLogits(run("decode_2", {nullptr, &second}, 1, 1), 1, second);
    expectLogits(run("prefill_5", {&first}, 4, chunk), 0, first);
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  Recipe recipe;
  ModelSpec spec;
  std::map<std::string, std::vector<double>> weights;
  Tensors caches;
  Text first, second;
};

TEST_F(BuildInference, Gpt2) {
  expectReference(mustRead("gpt2"));
  expectReference(mustRead("gpt2", {{"scale_attn_by_inverse_layer_idx", true},
                                    {"n_positions", 22}}));
}

TEST_F(BuildInference, LlamaWithGroups) {
  expectReference(mustRead("llama"));
  expectReference(mustRead(
      "llama", {{"num_key_value_heads", 1}, {"attention_bias", true}}));
}

TEST_F(BuildInference, MistralWindow) {
  expectReference(mustRead("mistral", {{"sliding_window", 6}}));
}

TEST_F(BuildInference, Qwen3NormsQueriesAndKeys) {
  expectReference(mustRead("qwen3"));
}

TEST_F(BuildInference, GemmaCapsAndMixesWindows) {
  expectReference(mustRead("gemma2", {{"attn_logit_softcapping", 1.5},
                                      {"final_logit_softcapping", 2},
                                      {"sliding_window", 6}}));
  expectReference(mustRead(
      "gemma3_text", {{"sliding_window", 6}, {"sliding_window_pattern", 2}}));
}

TEST_F(BuildInference, Phi3TurnsAPartOfEachHead) {
  expectReference(mustRead("phi3", {{"partial_rotary_factor", 0.75}}));
}

TEST_F(BuildInference, Experts) {
  expectReference(mustRead("mixtral"));
  expectReference(mustRead("dots1"));
}

// One vector per token and layer, which all heads read.
TEST_F(BuildInference, LatentVectorsAreCached) {
  expectReference(mustRead("deepseek_v2"));
  expectReference(mustRead("deepseek_v3", {{"v_head_dim", 12}}));
  ASSERT_EQ(caches.size(), size_t(spec.layers));
  for (const Tensor &each : caches)
    EXPECT_EQ(each.shape.back(), 14 + 4);
  recipe.inference.kv = KvKind::Int8;
  expectReference(mustRead("deepseek_v3"));
}

// What is in a slot of no sequence does not matter: here, not a number.
TEST_F(BuildInference, RecurrentLayersKeepStates) {
  recipe.inference.pages = 0; // which are of attention
  expectReference(mustRead("mamba2"));
  expectReference(mustRead("mamba2", {{"conv_kernel", 3}, {"use_bias", true}}));
  recipe.inference.pages = pages;
  expectReference(mustRead("granitemoehybrid", {{"num_local_experts", 5},
                                                {"num_experts_per_tok", 2}}));
  expectReference(mustRead("granitemoehybrid"));
  std::vector<int64_t> ranks;
  for (const Tensor &each : caches)
    ranks.push_back(int64_t(each.shape.size()));
  EXPECT_EQ(ranks, (std::vector<int64_t>{3, 4, 4, 4, 3, 4, 3, 4}));
}

// A slot that another sequence has left.
TEST_F(BuildInference, SequencesBeginWithoutState) {
  build(mustRead("granitemoehybrid"));
  expectLogits(run("prefill_5", {&first}, 5, chunk), 0, first);
  second.state = first.state;
  expectLogits(run("prefill_5", {&second}, 1, chunk), 0, second);
  expectLogits(run("decode_1", {&second}, 1, 1), 0, second);
  first.length = 0;
  expectLogits(run("decode_1", {&first}, 1, 1), 0, first);
}

TEST_F(BuildInference, OfATrainingStepKeysAndValuesAre) {
  recipe.inference.numerics = recipe::Numerics::Training;
  recipe.inference.page = 64; // which that asks for
  build(mustRead("deepseek_v2", {{"v_head_dim", 12}}));
  ASSERT_EQ(caches.size(), 2 * size_t(spec.layers));
  for (const Tensor &each : caches)
    EXPECT_EQ(llvm::ArrayRef(each.shape),
              llvm::ArrayRef<int64_t>({pages, 64, spec.heads, 12}));
}

TEST_F(BuildInference, KeysAndValuesAsInt8) {
  recipe.inference.kv = KvKind::Int8;
  expectReference(mustRead("llama"));
  expectReference(mustRead("gpt2"));
  expectReference(mustRead("mistral", {{"sliding_window", 6}}));
  const char *what[] = {"keys", "values", "key_scales", "value_scales"};
  auto decode = module->lookupSymbol<mlir::func::FuncOp>("decode_1");
  for (unsigned i = 0; i < caches.size(); ++i) {
    auto name =
        decode.getResultAttrOfType<mlir::StringAttr>(i, graph::kStateAttr);
    ASSERT_TRUE(name);
    EXPECT_EQ(name.str(), std::string("cache.") + what[i % 4] + "." +
                              std::to_string(i / 4));
    auto type = mlir::cast<mlir::RankedTensorType>(decode.getResultTypes()[i]);
    EXPECT_EQ(type.getElementType().isInteger(8), i % 4 < 2);
  }
}

TEST_F(BuildInference, HasAProgramForEachBucket) {
  EXPECT_EQ(decodeBuckets(1), (std::vector<int64_t>{1}));
  EXPECT_EQ(decodeBuckets(8), (std::vector<int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(decodeBuckets(40),
            (std::vector<int64_t>{1, 2, 4, 8, 12, 16, 24, 32, 40}));
  ModelSpec dense, experts;
  EXPECT_EQ(prefillBuckets(dense, 100), (std::vector<int64_t>{100}));
  EXPECT_EQ(prefillBuckets(dense, 256), (std::vector<int64_t>{64, 256}));
  EXPECT_EQ(prefillBuckets(dense, 512), (std::vector<int64_t>{32, 128, 512}));
  experts.moe.emplace();
  experts.moe->experts = 8;
  experts.moe->chosen = 2;
  EXPECT_EQ(prefillBuckets(experts, 256), (std::vector<int64_t>{256}));
  EXPECT_EQ(prefillBuckets(experts, 512), (std::vector<int64_t>{128, 512}));
}

TEST_F(BuildInference, CachesTooSmallForOneSequenceAreRefused) {
  ModelSpec model;
  model.maxPositions = 64;
  recipe.inference.pages = 5; // of 22 tokens, 6 pages
  EXPECT_FALSE(checkRecipe(recipe, model, Mode::Infer).ok());
  recipe.inference.pages = 6;
  EXPECT_TRUE(checkRecipe(recipe, model, Mode::Infer).ok());
}

} // namespace
} // namespace tessera::models
