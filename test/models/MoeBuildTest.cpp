// Models with experts against ReferenceModel: what they compute, whom an expert
// without room leaves out, and what their routers are judged by.
#include "dialects/graph/GraphExchangeOps.h"
#include "models/moe/Routing.h"
#include "runtime/train/Router.h"
#include "test/models/BuildFixture.h"

namespace tessera::models {
namespace {

using recipe::BalanceScope;
using recipe::DropPolicy;
using recipe::RowDispatch;

class MoeBuild : public Build {
protected:
  MoeBuild() { recipe.moe.balanceWeight = recipe.moe.zWeight = 0; }
};

TEST_F(MoeBuild, Mixtral) {
  expectReference(mustRead("mixtral"));
  expectReference(mustRead("mixtral", {{"sliding_window", 3}}));
  expectReference(mustRead("mixtral", {{"num_experts_per_tok", 1}}));
  expectReference(mustRead("mixtral", {{"num_experts_per_tok", 5}}));
}

TEST_F(MoeBuild, QwenWithDenseLayersBetween) {
  expectReference(mustRead("qwen2_moe"));
  expectReference(mustRead(
      "qwen2_moe", {{"norm_topk_prob", true}, {"decoder_sparse_step", 2}}));
  expectReference(mustRead("qwen3_moe", {{"mlp_only_layers", {0, 2}}}));
}

TEST_F(MoeBuild, Dots1ChoosesAmongGroupsByBiasedScores) {
  expectReference(mustRead("dots1"));
  expectReference(mustRead("gpt_oss"));
  expectReference(mustRead("gpt_oss", {{"swiglu_limit", 0.4}}));
  expectReference(mustRead("dots1", {{"n_group", 1},
                                     {"topk_group", 1},
                                     {"norm_topk_prob", false},
                                     {"attention_bias", true}}));
}

TEST_F(MoeBuild, GraniteHasASharedExpertInEveryLayer) {
  ModelSpec spec = mustRead("granitemoehybrid", {{"num_local_experts", 5},
                                                 {"num_experts_per_tok", 2}});
  EXPECT_EQ(spec.moe->sparseLayers(), 4);
  expectReference(spec);
}

TEST_F(MoeBuild, DeepseekAttendsToLatentVectors) {
  const json yarn = {{"rope_type", "yarn"},
                     {"factor", 8.0},
                     {"mscale", 0.7},
                     {"mscale_all_dim", 0.9},
                     {"original_max_position_embeddings", 16}};
  expectReference(mustRead("deepseek_v3"));
  expectReference(mustRead("deepseek_v3", {{"rope_interleave", false},
                                           {"attention_bias", true},
                                           {"rope_scaling", yarn},
                                           {"v_head_dim", 12}}));
  expectReference(mustRead("deepseek_v2"));
  // Queries that are not compressed; RFC 7386 cannot write a null.
  json config = smallConfig("deepseek_v2");
  config.update({{"q_lora_rank", nullptr},
                 {"topk_method", "group_limited_greedy"},
                 {"n_group", 4},
                 {"topk_group", 1},
                 {"rope_scaling", yarn}});
  StatusOr<ModelSpec> spec = parseHfConfig(config.dump(), "config.json");
  ASSERT_TRUE(spec.ok()) << spec.message();
  EXPECT_EQ(spec->latent->queryRank, 0);
  expectReference(*spec);
}

// A dense layer is a layer of the family without experts.
TEST_F(MoeBuild, LayersOfAKindShareABlock) {
  build(mustRead("dots1"));
  std::set<std::string> blocks;
  for (auto function : module->getOps<mlir::func::FuncOp>())
    if (function.isPrivate())
      blocks.insert(function.getName().str());
  EXPECT_EQ(blocks, (std::set<std::string>{"layer", "layer.moe", "layer.logits",
                                           "layer.logits.moe"}));
}

// In training; what generates has one device.
TEST_F(MoeBuild, RowsMayChangeDevicesUnlessTokensAreGathered) {
  for (RowDispatch dispatch :
       {RowDispatch::Auto, RowDispatch::Gather, RowDispatch::Exchange}) {
    recipe.moe.dispatch = dispatch;
    build(mustRead("mixtral"));
    int64_t sends = dispatch == RowDispatch::Gather ? 0 : 1;
    EXPECT_EQ(count<graph::SendRowsOp>(), sends);
    EXPECT_EQ(count<graph::ReturnRowsOp>(), sends);
    module->walk([&](graph::SendRowsOp op) {
      EXPECT_EQ(op->getParentOfType<mlir::func::FuncOp>().getName(),
                "layer.moe");
      EXPECT_EQ(op.getAlways(), dispatch == RowDispatch::Exchange);
    });
  }
}

//===--- dropping ---------------------------------------------------------===//

class MoeDrop : public MoeBuild,
                public testing::WithParamInterface<DropPolicy> {};

TEST_P(MoeDrop, ExpertsTakeWhatTheyHaveRoomFor) {
  ModelSpec spec = mustRead("mixtral", {{"num_hidden_layers", 2}});
  recipe.moe.capacity = 0.6;
  recipe.moe.drop = GetParam();
  build(spec);
  randomize(spec);
  ReferenceModel reference(spec, weights);
  reference.room = int64_t(std::ceil(0.6 * length * 2 / 5)); // 2 tokens
  reference.dropsByWeight = GetParam() == DropPolicy::Probability;
  double expected = 0;
  std::vector<double> dropped(2);
  for (int64_t b = 0; b < batch; ++b) {
    auto logits = reference.logits(tokens[size_t(b)]);
    for (int64_t t = 0; t < length; ++t) {
      double sum = 0;
      for (double each : logits[size_t(t)])
        sum += std::exp(each);
      if (int target = targets[size_t(b)][size_t(t)]; target != -100)
        expected += std::log(sum) - logits[size_t(t)][size_t(target)];
    }
    for (int64_t layer = 0; layer < 2; ++layer)
      for (const auto &choice : reference.choices[layer])
        dropped[size_t(layer)] += double(
            std::count(choice.dropped.begin(), choice.dropped.end(), true));
  }
  Tensors results = runLoss(spec);
  ASSERT_EQ(results.size(), 3u); // without penalties there is no sum of them
  EXPECT_NEAR(results[0].data[0], expected, batch * length * tolerance);
  EXPECT_GT(dropped[0], 0);
  for (int64_t layer = 0; layer < 2; ++layer)
    EXPECT_EQ(results[2].at({layer, droppedSum}), dropped[size_t(layer)]);
}

INSTANTIATE_TEST_SUITE_P(Policies, MoeDrop,
                         testing::Values(DropPolicy::Position,
                                         DropPolicy::Probability),
                         [](const auto &info) {
                           return std::string(recipe::name(info.param));
                         });

TEST_F(MoeBuild, LogitsDropNothing) {
  recipe.moe.capacity = 0.01;
  build(mustRead("mixtral"));
  auto logits = module->lookupSymbol<mlir::func::FuncOp>("layer.logits.moe");
  logits.walk([](graph::RankInGroupOp op) { ADD_FAILURE(); });
  EXPECT_EQ(count<graph::RankInGroupOp>(), 1);
}

//===--- losses -----------------------------------------------------------===//

/// Of one layer, over some tokens.
struct Judged {
  std::vector<double> load, p; ///< choices and sums of probabilities, by expert
  double entropy = 0, z = 0, tokens = 0;

  explicit Judged(const MoeSpec &moe)
      : load(size_t(moe.experts)), p(size_t(moe.experts)) {}
  void add(const ReferenceModel::Choice &choice) {
    double sum = 0, exponentials = 0;
    for (double score : choice.scores)
      sum += score;
    for (size_t e = 0; e < p.size(); ++e) {
      double share = choice.scores[e] / sum;
      p[e] += share;
      entropy -= share * std::log(share);
      exponentials += std::exp(choice.logits[e]);
    }
    for (size_t e : choice.experts)
      load[e] += 1;
    z += std::log(exponentials) * std::log(exponentials);
    ++tokens;
  }
  /// experts × Σ f p, f of the loads of `scope`.
  double balance(const Judged &scope) const {
    double choices = 0, sum = 0;
    for (double each : scope.load)
      choices += each;
    for (size_t e = 0; e < p.size(); ++e)
      sum += scope.load[e] / choices * p[e];
    return sum * double(p.size()); // for each of the tokens
  }
};

class MoeLosses : public MoeBuild,
                  public testing::WithParamInterface<
                      std::tuple<const char *, BalanceScope>> {};

TEST_P(MoeLosses, AreTheirFormulas) {
  auto [type, scope] = GetParam();
  ModelSpec spec = mustRead(type);
  recipe.moe = {scope, /*balanceWeight=*/0.3, /*zWeight=*/0.07};
  build(spec);
  randomize(spec);
  ReferenceModel reference(spec, weights);
  Tensors results = runLoss(spec);
  ASSERT_EQ(results.size(), 4u);
  double penalty = 0;
  int64_t row = 0, first = spec.layers - spec.moe->sparseLayers();
  for (int64_t layer = first; layer < spec.layers; ++layer, ++row) {
    Judged all(*spec.moe);
    std::vector<Judged> sequences;
    for (int64_t b = 0; b < batch; ++b) {
      reference.logits(tokens[size_t(b)]);
      sequences.emplace_back(*spec.moe);
      for (const auto &choice : reference.choices[layer]) {
        all.add(choice);
        sequences.back().add(choice);
      }
    }
    double balance = 0;
    for (const Judged &each : sequences)
      balance += each.balance(scope == BalanceScope::Sequence ? each : all);
    penalty += 0.3 * balance + 0.07 * all.z;
    for (int64_t e = 0; e < spec.moe->experts; ++e)
      EXPECT_EQ(results[2].at({row, e}), all.load[size_t(e)]);
    EXPECT_EQ(results[3].at({row, droppedSum}), 0);
    EXPECT_NEAR(results[3].at({row, entropySum}), all.entropy, 1e-4);
    EXPECT_NEAR(results[3].at({row, zSum}), all.z, 1e-4);
    EXPECT_NEAR(results[3].at({row, balanceSum}), balance, 1e-4);
  }
  EXPECT_NEAR(results[1].data[0], penalty, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(
    Scopes, MoeLosses,
    testing::Combine(testing::Values("mixtral", "dots1"),
                     testing::Values(BalanceScope::Sequence,
                                     BalanceScope::Microbatch,
                                     BalanceScope::Global)),
    [](const auto &info) {
      return std::string(std::get<0>(info.param)) + "_" +
             std::string(recipe::name(std::get<1>(info.param)));
    });

// Of step n, from 0, (n + 1) / 4 of the balance loss and all of the z-loss.
TEST_F(MoeBuild, TheBalanceWeightGrows) {
  ModelSpec spec = mustRead("mixtral");
  recipe.moe.balanceWeight = 0.3, recipe.moe.zWeight = 0.07;
  build(spec);
  randomize(spec);
  const Tensors full = runLoss(spec);
  double z = 0;
  for (int64_t layer = 0; layer < spec.layers; ++layer)
    z += 0.07 * full[3].at({layer, zSum});
  recipe.moe.balanceWarmup = 4;
  build(spec);
  for (auto [step, part] :
       {std::pair(0, 0.25), {2, 0.75}, {3, 1.0}, {1'000'000, 1.0}})
    EXPECT_NEAR(runLoss(spec, 1, step)[1].data[0],
                z + part * (full[1].data[0] - z), 1e-4)
        << step;
}

// Sequences have their own noise, wherever a batch is divided.
TEST_F(MoeBuild, NoiseIsThatOfSeedStepAndSequence) {
  ModelSpec spec = mustRead("qwen2_moe");
  build(spec);
  randomize(spec);
  const double plain = loss(spec);
  recipe.moe.noise = 1.0;
  build(spec);
  const double noisy = loss(spec);
  EXPECT_NE(noisy, plain);
  EXPECT_EQ(loss(spec), noisy);
  EXPECT_NE(loss(spec, 2), noisy);
  EXPECT_NE(loss(spec, 1, 1), noisy);
  EXPECT_NE(loss(spec, 1, 0, batch), noisy);
  module->walk([&](graph::RandomOp op) {
    auto function = op->getParentOfType<mlir::func::FuncOp>().getName();
    EXPECT_TRUE(function == "layer.moe" || function == "init")
        << function.str();
  });
  recipe.moe.noise = 1e-9;
  build(spec);
  EXPECT_NEAR(loss(spec), plain, 1e-4);
}

//===--- the end of a step ------------------------------------------------===//

TEST_F(MoeBuild, FinishStepMovesBiasesAndFillsTheTable) {
  ModelSpec spec = mustRead("dots1"); // layers 1 and 2, 8 experts, 2 chosen
  recipe.moe.biasRate = 0.25;
  build(spec);
  Tensor bias({8}, {0, 1, 2, 3, 4, 5, 6, 7});
  Tensor loads({2, 8}, {4, 4, 4, 4, 4, 4, 4, 4, 0, 0, 20, 4, 2, 2, 2, 2});
  Tensor sums({2, routerSums}, {0, 32, 8, 16, 8, 4, 2, 24});
  Tensors results = run("finish_step", {bias, bias, loads, sums});
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].data, bias.data);
  EXPECT_EQ(results[1].data,
            (std::vector<double>{0.25, 1.25, 1.75, 3, 4.25, 5.25, 6.25, 7.25}));
  const Tensor &table = results[2];
  ASSERT_EQ(table.size(), int64_t(2 * kRouterColumns));
  auto at = [&](int64_t layer, RouterColumn column) {
    return table.at({layer, int64_t(column)});
  };
  // 32 choices of 16 tokens in either layer.
  EXPECT_NEAR(at(0, RouterColumn::maxLoad), 1, 1e-6);
  EXPECT_NEAR(at(1, RouterColumn::maxLoad), 5, 1e-6);
  EXPECT_EQ(at(0, RouterColumn::dead), 0);
  EXPECT_EQ(at(1, RouterColumn::dead), 2);
  EXPECT_NEAR(at(1, RouterColumn::dropped), 0.25, 1e-6);
  EXPECT_NEAR(at(0, RouterColumn::entropy), 2, 1e-6);
  EXPECT_NEAR(at(0, RouterColumn::z), 0.5, 1e-6);
  EXPECT_NEAR(at(0, RouterColumn::balance), 1, 1e-6);
  EXPECT_NEAR(at(1, RouterColumn::balance), 1.5, 1e-6);
}

TEST_F(MoeBuild, FixedAndWideParametersSaySo) {
  ModelSpec spec = mustRead("dots1");
  build(spec);
  auto loss = module->lookupSymbol<mlir::func::FuncOp>("loss");
  std::vector<Parameter> all = parameters(spec);
  int64_t fixed = 0, wide = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    auto attributes = loss.getArgAttrDict(unsigned(i));
    bool isBias = all[i].name.ends_with("e_score_correction_bias");
    EXPECT_EQ(attributes.contains(graph::kFrozenAttr), isBias) << all[i].name;
    fixed += isBias;
    wide += attributes.contains(graph::kKeepF32Attr);
  }
  EXPECT_EQ(fixed, 2);
  EXPECT_EQ(wide, 4);
}

} // namespace
} // namespace tessera::models
