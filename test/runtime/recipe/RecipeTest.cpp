// recipe.yaml: reading, overriding, refusing, printing.
#include "runtime/recipe/BaseLayout.h"
#include "runtime/recipe/RecipeChanges.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace tessera::recipe {
namespace {

Recipe mustParse(std::string_view text,
                 const std::vector<std::string> &overrides = {}) {
  StatusOr<Recipe> recipe = parseRecipe(text, "r.yaml", overrides);
  if (!recipe.ok())
    throw std::runtime_error(recipe.message());
  return *recipe;
}

std::string errorOf(std::string_view text,
                    const std::vector<std::string> &overrides = {}) {
  StatusOr<Recipe> recipe = parseRecipe(text, "r.yaml", overrides);
  return recipe.ok() ? "no error" : recipe.message();
}

TEST(Recipe, EmptyIsTheDefaults) {
  EXPECT_EQ(mustParse(""), Recipe());
  EXPECT_EQ(mustParse("# nothing\n"), Recipe());
  EXPECT_EQ(mustParse("data:\n  # train: x\n"), Recipe());
  StatusOr<Recipe> none = loadRecipe("");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, Recipe());
}

TEST(Recipe, EveryKeyIsRead) {
  Recipe recipe = mustParse(R"(
optimizer: {name: sgd, lr: 3e-4, betas: [0.8, 0.99], eps: 1e-6,
            weight_decay: 0, momentum: 0.9, clip: 0.5}
lr_schedule: {name: linear, warmup: 10, total: 20, min_ratio: 0}
batch: {micro: 2, accumulate: 3, sequence: 64}
precision: {compute: bf16}
recompute: selective
dropout: {rate: 0.25}
attention: {prompts: bidirectional}
inference: {context: 512, batch: 3, chunk: 32, page: 16, pages: 99,
            kv: int8, zeros: groups, layout: packed, activations: int8,
            numerics: training, pooling: mean_sqrt, normalize: l2}
adapter: {kind: lora, rank: 8, ranks: [down_proj=4, mlp.up_proj=2],
          alpha: 3, scaling: root, dropout: 0.1, base: fp32,
          target: [down_proj, up_proj], modules_to_save: [lm_head]}
seed: 7
data: {train: tokens/train, eval: "tokens eval"}
eval: {every: 5, batches: 2}
checkpoint: {every: 6, keep: 0}
gates: {require: [eval_loss<=3.20, eval_loss >= 1e-3], on_miss: roll_back,
        rollbacks: 2}
)");
  EXPECT_EQ(recipe.optimizer.name, OptimizerKind::Sgd);
  EXPECT_EQ(recipe.optimizer.lr, 3e-4);
  EXPECT_EQ(recipe.optimizer.betas, (std::array<double, 2>{0.8, 0.99}));
  EXPECT_EQ(recipe.optimizer.eps, 1e-6);
  EXPECT_EQ(recipe.optimizer.weightDecay, 0);
  EXPECT_EQ(recipe.optimizer.momentum, 0.9);
  EXPECT_EQ(recipe.optimizer.clip, 0.5);
  EXPECT_EQ(recipe.schedule.name, ScheduleKind::Linear);
  EXPECT_EQ(recipe.schedule.warmup, 10);
  EXPECT_EQ(recipe.schedule.total, 20);
  EXPECT_EQ(recipe.schedule.minRatio, 0);
  EXPECT_EQ(recipe.batch.tokens(), 2 * 3 * 64);
  EXPECT_EQ(recipe.compute, Precision::Bf16);
  EXPECT_EQ(recipe.recompute, Recompute::Selective);
  EXPECT_EQ(recipe.dropout.rate, 0.25);
  EXPECT_EQ(recipe.attention.prompts, Prompts::Bidirectional);
  EXPECT_EQ(recipe.inference,
            (Recipe::Inference{512, 3, 32, 16, 99, KvKind::Int8, Quant::None,
                               32, ZeroPoints::Groups, WeightLayout::Packed,
                               Activations::Int8, Numerics::Training,
                               Pooling::MeanSqrt, Normalize::L2}));
  using Names = std::vector<std::string>;
  EXPECT_EQ(recipe.adapter,
            (AdapterRecipe{AdapterKind::Lora, 8, 3, AdapterScaling::Root,
                           AdapterBase::Fp32, Names{"down_proj", "up_proj"},
                           Names{"down_proj=4", "mlp.up_proj=2"}, 0.1,
                           Names{"lm_head"}, 0}));
  EXPECT_EQ(recipe.seed, 7);
  EXPECT_EQ(recipe.data.train, "tokens/train");
  EXPECT_EQ(recipe.data.eval, "tokens eval");
  EXPECT_EQ(recipe.eval.every, 5);
  EXPECT_EQ(recipe.eval.batches, 2);
  EXPECT_EQ(recipe.checkpoint.every, 6);
  EXPECT_EQ(recipe.checkpoint.keep, 0);
  EXPECT_EQ(recipe.gates,
            (Recipe::Gates{{"eval_loss <= 3.2", "eval_loss >= 0.001"},
                           OnMiss::RollBack,
                           2}));
}

TEST(Recipe, CodesOfAnAdaptersBase) {
  const auto layoutOf = [](const std::string &base,
                           const std::string &more = "") {
    return baseLayout(
        mustParse("adapter: {kind: lora, base: " + base + "}\n" + more));
  };
  EXPECT_EQ(layoutOf("auto"), std::nullopt);
  EXPECT_EQ(layoutOf("bf16", "precision: {compute: bf16}"), std::nullopt);
  EXPECT_EQ(layoutOf("nf4"),
            (QuantizedLayout{.bits = 4, .group = 64, .floats = true}));
  EXPECT_EQ(layoutOf("int8"), (QuantizedLayout{.bits = 8, .group = 32}));
  EXPECT_EQ(layoutOf("int4", "inference: {group: 128, zeros: groups}"),
            (QuantizedLayout{.bits = 4, .group = 128, .zeros = true}));
  EXPECT_EQ(layoutOf("fp8", "inference: {group: 64}"),
            (QuantizedLayout{.bits = 8, .group = 64, .floats = true}));
  EXPECT_EQ(errorOf("adapter: {kind: lora, base: fp8}\n"
                    "inference: {zeros: groups}"),
            "r.yaml: inference.zeros: adapter.base: fp8 has no zero points; "
            "leave it out, or choose int8 or int4");
  EXPECT_EQ(errorOf("adapter: {kind: lora, base: int8}\n"
                    "precision: {compute: fp64}"),
            "r.yaml: adapter.base: int8 is dequantized to fp32 or bf16, and "
            "precision.compute is fp64; change one of them");
}

TEST(Recipe, Gates) {
  EXPECT_EQ(mustParse("gates: {require: eval_loss <= 3}").gates.require,
            std::vector<std::string>{"eval_loss <= 3"});
  EXPECT_EQ(mustParse("gates: {require: []}"), Recipe());
  EXPECT_EQ(mustParse("", {"gates.require=[eval_loss <= 3]"}).gates.require,
            std::vector<std::string>{"eval_loss <= 3"});
  auto require = [](const std::string &gate) {
    const std::string error = errorOf("gates: {require: ['" + gate + "']}");
    const std::string where = "r.yaml:1: key 'gates.require': ";
    return error.starts_with(where) ? error.substr(where.size()) : error;
  };
  EXPECT_EQ(require("eval_loss < 3"), "must be METRIC <= NUMBER or METRIC >= "
                                      "NUMBER, got 'eval_loss < 3'");
  EXPECT_EQ(require("evalloss <= 3"),
            "unknown metric 'evalloss', did you mean 'eval_loss'?; an "
            "evaluation has eval_loss or eval_reward");
  for (const char *bad : {"eval_loss <= x", "eval_loss <=", "eval_loss <= nan",
                          "eval_loss <= 1e999", "eval_loss <= 3 4"})
    EXPECT_EQ(require(bad),
              "must compare with a number, got '" + std::string(bad) + "'");
  EXPECT_EQ(errorOf("gates: {on_miss: note}"),
            "r.yaml: gates.on_miss and gates.rollbacks have no meaning without "
            "gates.require; add it, or leave them out");
  EXPECT_EQ(errorOf("gates: {require: [eval_loss <= 3]}\neval: {every: 0}"),
            "r.yaml: gates.require needs evaluations; set eval.every");
  EXPECT_EQ(errorOf("gates: {require: [eval_reward >= 3]}"),
            "r.yaml: gates.require: task: sft has eval_loss, not eval_reward");
  EXPECT_EQ(errorOf("gates: {require: [eval_loss <= 3], rollbacks: 2}"),
            "r.yaml: gates.rollbacks has no meaning here: it belongs to "
            "gates.on_miss: roll_back; leave it out, or change the task");
  EXPECT_EQ(errorOf("task: policy\ndata: {documents: separate}\ngates: "
                    "{require: [eval_reward >= 3], on_miss: roll_back}"),
            "r.yaml: gates.on_miss: roll_back goes on with the data that "
            "follows, which task: policy has none of; use stop or note");
}

TEST(Recipe, MinibatchesHaveAsManyPrompts) {
  const std::string text = "task: policy\ndata: {documents: separate}\n"
                           "rollout: {prompts: 6, epochs: 2, minibatches: ";
  EXPECT_EQ(mustParse(text + "3}").rollout.steps(), 6);
  EXPECT_EQ(errorOf(text + "4}"),
            "r.yaml: rollout.prompts = 6 is not a multiple of "
            "rollout.minibatches = 4; change one of them");
}

TEST(Recipe, SectionsNest) {
  Recipe recipe = mustParse(R"(
task: policy
policy: {ratio: sequence, clip_low: 0.1, clip_high: 0.28, aggregate: constant,
         length: 99, kl: {beta: 0.04, estimator: k2}, documents: 5}
data: {documents: separate}
)");
  Recipe::Policy policy;
  policy.ratio = PolicyRatio::Sequence;
  policy.clipLow = 0.1;
  policy.clipHigh = 0.28;
  policy.aggregate = PolicyAggregate::Constant;
  policy.length = 99;
  policy.kl = {0.04, KlEstimator::K2};
  policy.documents = 5;
  EXPECT_EQ(recipe.policy, policy);
  recipe.policy.advantages = Advantages::Gae;
  recipe.policy.gae = {0.5, 0.25, Whitening::None};
  recipe.policy.value = {2, 3};
  recipe.rollout.baseline = Baseline::None;
  recipe.rollout.scale = RewardScale::None;
  EXPECT_EQ(mustParse(R"(
task: policy
policy: {ratio: sequence, clip_low: 0.1, clip_high: 0.28, aggregate: constant,
         length: 99, kl: {beta: 0.04, estimator: k2}, documents: 5,
         advantages: gae, gae: {gamma: 0.5, lambda: 0.25, whiten: none},
         value: {weight: 2, clip: 3}}
rollout: {baseline: none, scale: none}
data: {documents: separate}
)"),
            recipe);
  EXPECT_EQ(mustParse("task: policy\ndata: {documents: separate}\n",
                      {"policy.kl.beta=0.5"})
                .policy.kl.beta,
            0.5);
  const std::string printed = printRecipe(recipe);
  EXPECT_NE(printed.find("  kl:\n    beta: 0.04\n    estimator: k2\n"
                         "  documents: 5\n  advantages: gae\n  gae:\n"
                         "    gamma: 0.5\n    lambda: 0.25\n"
                         "    whiten: none\n  value:\n    weight: 2\n"
                         "    clip: 3\nkto:\n"),
            std::string::npos)
      << printed;
  EXPECT_EQ(mustParse(printed), recipe);
}

TEST(Recipe, OverridesWinInOrder) {
  Recipe recipe =
      mustParse("optimizer: {lr: 1.0}\ndata: {train: a}\n",
                {"optimizer.lr=2", "optimizer.lr=3e-4", "data.train=null",
                 "optimizer.betas=[0.5, 0.6]", "recompute=full"});
  EXPECT_EQ(recipe.optimizer.lr, 3e-4);
  EXPECT_EQ(recipe.data.train, std::nullopt);
  EXPECT_EQ(recipe.optimizer.betas[1], 0.6);
  EXPECT_EQ(recipe.recompute, Recompute::Full);
}

TEST(Recipe, ChangesNameTheirKeys) {
  const Recipe before = mustParse("optimizer: {lr: 3e-4}\ndata: {train: a}");
  const Recipe now =
      mustParse("optimizer: {lr: 1e-4}\ndata: {train: b}\nseed: 5");
  const std::vector<std::string> changes = listChanges(before, now);
  ASSERT_EQ(changes.size(), 3u);
  for (const char *each :
       {"optimizer.lr: 0.0003 before, 0.0001 now",
        R"(data.train: "a" before, "b" now)", "seed: 1337 before, 5 now"})
    EXPECT_NE(std::ranges::find(changes, each), changes.end()) << each;
  EXPECT_TRUE(listChanges(now, now).empty());
}

TEST(Recipe, PrintedRecipesReadBackBitForBit) {
  Recipe recipe;
  recipe.optimizer.lr = std::nextafter(3e-4, 1);
  recipe.optimizer.eps = 1.0 / 3.0 * 1e-9;
  recipe.optimizer.betas = {0.1 + 0.2, std::nextafter(1.0f, 0.0f)};
  recipe.dropout.rate = 0.1;
  recipe.seed = std::numeric_limits<int64_t>::max();
  recipe.data.train = "null";
  recipe.data.eval = "a: \"b\"\t#\n\xe4\xb8\xad \x01 c\\";
  EXPECT_EQ(mustParse(printRecipe(recipe)), recipe);
  EXPECT_EQ(mustParse(printRecipe(Recipe())), Recipe());
}

TEST(Recipe, UnknownKeysAreSuggestedFor) {
  EXPECT_EQ(errorOf("seed: 1\noptimiser:\n  lr: 1\n"),
            "r.yaml:2: key 'optimiser': is not a recipe key, did you mean "
            "'optimizer'?");
  EXPECT_EQ(errorOf("batch:\n  micro: 1\n  seqence: 8\n"),
            "r.yaml:3: key 'batch.seqence': is not a recipe key, did you mean "
            "'batch.sequence'?");
  EXPECT_EQ(errorOf("lr: 1"), "r.yaml:1: key 'lr': is not a recipe key, did "
                              "you mean 'optimizer.lr'?");
  EXPECT_EQ(errorOf("zzzzzzzz: 1"),
            "r.yaml:1: key 'zzzzzzzz': is not a recipe key");
  EXPECT_EQ(errorOf("schedule: {total: 10}"),
            "r.yaml:1: key 'schedule': was renamed to 'lr_schedule'");
  EXPECT_EQ(errorOf("", {"schedule.total=10"}),
            "--set 'schedule.total=10': key 'schedule.total': was renamed to "
            "'lr_schedule.total'");
}

TEST(Recipe, WrongValuesNameLineAndKey) {
  struct Case {
    const char *text, *message;
  };
  for (const Case &each : std::vector<Case>{
           {"optimizer:\n  lr: fast",
            "r.yaml:2: key 'optimizer.lr': must be a number, got 'fast'"},
           {"optimizer: {lr: -1}",
            "r.yaml:1: key 'optimizer.lr': must be at least 0 and at most "
            "1000000, got -1"},
           {"optimizer: {lr: nan}",
            "r.yaml:1: key 'optimizer.lr': must be at least 0 and at most "
            "1000000, got nan"},
           {"optimizer: {lr: 1e999}",
            "r.yaml:1: key 'optimizer.lr': must be at least 0 and at most "
            "1000000, got 1e999"},
           {"optimizer: {lr: \"1\"}",
            "r.yaml:1: key 'optimizer.lr': must be a number, got a string; "
            "remove the quotes around '1'"},
           {"optimizer: {lr: [1]}",
            "r.yaml:1: key 'optimizer.lr': must be a number, got a list of 1"},
           {"optimizer: {lr: }",
            "r.yaml:1: key 'optimizer.lr': must be a number, got null"},
           {"optimizer: {betas: [0.9, 1.0]}",
            "r.yaml:1: key 'optimizer.betas': must be at least 0 and less "
            "than 1, got 1.0"},
           {"optimizer: {betas: [0.9, 0.99999999]}", // 1 in fp32
            "r.yaml:1: key 'optimizer.betas': must be at least 0 and less "
            "than 1, got 0.99999999"},
           {"optimizer: {betas: 0.9}",
            "r.yaml:1: key 'optimizer.betas': must be two numbers [a, b], got "
            "'0.9'"},
           {"optimizer: {name: adamx}",
            "r.yaml:1: key 'optimizer.name': must be adamw or sgd, got "
            "'adamx', did you mean 'adamw'?"},
           {"recompute: [full]",
            "r.yaml:1: key 'recompute': must be none, full or selective, got "
            "a list of 1"},
           {"batch: {micro: 0}",
            "r.yaml:1: key 'batch.micro': must be at least 1 and at most "
            "65536, got 0"},
           {"batch: {micro: 4.0}",
            "r.yaml:1: key 'batch.micro': must be an integer, got '4.0'"},
           {"seed: 99999999999999999999",
            "r.yaml:1: key 'seed': must be at least 0 and at most "
            "9223372036854775807, got 99999999999999999999"},
           {"dropout: {rate: 1}",
            "r.yaml:1: key 'dropout.rate': must be at least 0 and less than "
            "1, got 1"},
           {"adapter: {kind: lora, dropout: 1}",
            "r.yaml:1: key 'adapter.dropout': must be at least 0 and less than "
            "1, got 1"},
           {"adapter: {kind: lora, ranks: [down_proj]}",
            "r.yaml:1: key 'adapter.ranks': must be at most 64 names with a "
            "number of at least 1, such as down_proj=8, got 'down_proj'"},
           {"adapter: {kind: lora, ranks: [down_proj=0]}",
            "r.yaml:1: key 'adapter.ranks': must be at most 64 names with a "
            "number of at least 1, such as down_proj=8, got 'down_proj=0'"},
           {"adapter: {kind: lora, target: []}",
            "r.yaml:1: key 'adapter.target': must be one or more words [a, b], "
            "got a list of 0"},
           {"data: {train: [a]}",
            "r.yaml:1: key 'data.train': must be a directory or null, got a "
            "list of 1"},
           {"data: {train: \"\"}",
            "r.yaml:1: key 'data.train': must be a directory or null, got ''"},
           {"data: {train: \"a\\0b\"}", "r.yaml:1: key 'data.train': must be a "
                                        "name in UTF-8 without NUL bytes"},
           {"data: {train: a\xff}", "r.yaml:1: key 'data.train': must be a "
                                    "name in UTF-8 without NUL bytes"},
           {"batch: 4", "r.yaml:1: key 'batch': must be a section, got '4'"},
           {"seed: 1\nseed: 2",
            "r.yaml:2: key 'seed': is given twice; keep one"},
           {"batch: {micro: 1,\n micro: 2}",
            "r.yaml:2: key 'batch.micro': is given twice; keep one"},
           {"? [a]\n: 1", "r.yaml:1: key '': keys must be plain words"},
           {"just words",
            "r.yaml: is 'just words', expected sections such as optimizer:"},
           {"seed: 1\n---\nseed: 2",
            "r.yaml:2:1: is not valid YAML: something follows the document"},
       })
    EXPECT_EQ(errorOf(each.text), each.message) << each.text;
}

TEST(Recipe, BrokenYamlNamesItsPlace) {
  std::string message = errorOf("seed: 1\nbatch: {micro: [\n");
  EXPECT_TRUE(message.starts_with("r.yaml:3:1: is not valid YAML: "))
      << message;
  // Deep nesting is refused, not recursed into.
  EXPECT_TRUE(errorOf(std::string(100000, '[')).starts_with("r.yaml:1:"));
}

TEST(Recipe, KeysThatDisagree) {
  EXPECT_EQ(errorOf("adapter: {rank: 8}"),
            "r.yaml: the keys of adapter have no meaning without adapter.kind: "
            "lora or dora; add it, or leave them out");
  EXPECT_EQ(errorOf("adapter: {kind: dora, dropout: 0.1}"),
            "r.yaml: adapter.dropout is not supported with adapter.kind: dora; "
            "leave it out, or choose lora");
  EXPECT_EQ(
      errorOf("lr_schedule: {warmup: 20, total: 10}"),
      "r.yaml: lr_schedule.warmup = 20 is more than lr_schedule.total = 10; "
      "lower warmup or raise total");
  EXPECT_EQ(errorOf("optimizer: {momentum: 0.9}"),
            "r.yaml: optimizer.momentum = 0.9 has no meaning for adamw; set "
            "betas, or choose optimizer.name = sgd");
  EXPECT_EQ(errorOf("batch: {micro: 65536, accumulate: 65536}"),
            "r.yaml: batch.micro * batch.accumulate * batch.sequence = "
            "1099511627776 tokens a step, more than 2147483648; lower one of "
            "them");
  EXPECT_EQ(errorOf("preference: {beta: 0.2}"),
            "r.yaml: preference has no meaning here: it belongs to task: dpo, "
            "orpo, simpo and reward; leave it out, or change the task");
  EXPECT_EQ(errorOf("task: dpo"), "r.yaml: task: dpo compares documents; set "
                                  "data.documents: separate");
  const std::string reward = "task: reward\ndata: {documents: separate}\n";
  EXPECT_EQ(errorOf(reward + "preference: {center: 0.01, pairs: 4}"),
            "no error");
  EXPECT_EQ(errorOf(reward + "preference: {beta: 0.2}"),
            "r.yaml: preference.beta has no meaning here: it belongs to task: "
            "dpo, orpo and simpo; leave it out, or change the task");
  EXPECT_EQ(errorOf("task: orpo\ndata: {documents: separate}\n"
                    "preference: {center: 0.01}"),
            "r.yaml: preference.center has no meaning here: it belongs to "
            "task: reward; leave it out, or change the task");
  const std::string orpo = "task: orpo\ndata: {documents: separate}\n";
  EXPECT_EQ(errorOf(orpo + "preference: {loss: ipo}"),
            "r.yaml: preference.loss has no meaning here: it belongs to task: "
            "dpo; leave it out, or change the task");
  EXPECT_EQ(errorOf("task: dpo\ndata: {documents: separate}\n"
                    "preference: {loss: hinge, label_smoothing: 0.1}"),
            "r.yaml: preference.label_smoothing has no meaning here: it "
            "belongs to task: dpo with preference.loss: sigmoid; leave it out, "
            "or change the task");
  EXPECT_EQ(errorOf("policy: {kl: {beta: 0.1}}"),
            "r.yaml: policy has no meaning here: it belongs to task: policy; "
            "leave it out, or change the task");
  EXPECT_EQ(errorOf("task: policy"), "r.yaml: task: policy learns from "
                                     "documents; set data.documents: separate");
  EXPECT_EQ(errorOf("kto: {beta: 0.2}"),
            "r.yaml: kto has no meaning here: it belongs to task: kto; leave "
            "it out, or change the task");
  EXPECT_EQ(errorOf("task: kto\ndata: {documents: separate}\n"
                    "kto: {beta: 0.2, desirable_weight: 2, documents: 9}"),
            "no error");
  const std::string policy = "task: policy\ndata: {documents: separate}\n";
  EXPECT_EQ(errorOf(policy), "no error");
  EXPECT_EQ(errorOf(policy + "preference: {beta: 1}"),
            "r.yaml: preference has no meaning here: it belongs to task: dpo, "
            "orpo, simpo and reward; leave it out, or change the task");
  EXPECT_EQ(errorOf(policy + "policy: {kl: {estimator: k1}}"),
            "r.yaml: policy.kl.estimator has no meaning here: it belongs to "
            "policy.kl.beta above 0; leave it out, or change the task");
  EXPECT_EQ(errorOf(policy + "policy: {length: 9}"),
            "r.yaml: policy.length has no meaning here: it belongs to "
            "policy.aggregate: constant; leave it out, or change the task");
  EXPECT_EQ(errorOf(policy + "policy: {aggregate: constant}"),
            "r.yaml: policy.aggregate: constant divides by policy.length; give "
            "it, such as the most tokens of an answer");
  EXPECT_EQ(errorOf(policy + "policy: {advantages: gae}"),
            "r.yaml: policy.advantages: gae compares rewards with a value "
            "head; set rollout.baseline and rollout.scale to none");
  EXPECT_EQ(errorOf(policy + "policy: {gae: {gamma: 0.9}}"),
            "r.yaml: policy.gae has no meaning here: it belongs to "
            "policy.advantages: gae; leave it out, or change the task");
  EXPECT_EQ(errorOf(policy + "policy: {value: {clip: 0}}"),
            "r.yaml: policy.value has no meaning here: it belongs to "
            "policy.advantages: gae; leave it out, or change the task");
  // Only the outcome counts: an override may repair what the file broke.
  EXPECT_EQ(
      errorOf("lr_schedule: {warmup: 20, total: 10}", {"lr_schedule.total=30"}),
      "no error");
}

TEST(Recipe, OverrideErrors) {
  EXPECT_EQ(errorOf("", {"optimizer.lr"}),
            "--set 'optimizer.lr': expected KEY=VALUE, for example "
            "optimizer.lr=3e-4");
  EXPECT_EQ(errorOf("", {"seed=,@"}),
            "--set 'seed=,@': key 'seed': is not a valid value: something "
            "follows the document");
  EXPECT_EQ(errorOf("", {"=3"}), "--set '=3': expected KEY=VALUE, for example "
                                 "optimizer.lr=3e-4");
  EXPECT_EQ(errorOf("", {"optimizer.lr=x"}),
            "--set 'optimizer.lr=x': key 'optimizer.lr': must be a number, "
            "got 'x'");
  EXPECT_EQ(errorOf("", {"optimizer.lr="}),
            "--set 'optimizer.lr=': key 'optimizer.lr': must be a number, got "
            "null");
  EXPECT_EQ(errorOf("", {"optimizer.lrr=1"}),
            "--set 'optimizer.lrr=1': key 'optimizer.lrr': is not a recipe "
            "key, did you mean 'optimizer.lr'?");
  EXPECT_EQ(errorOf("", {"optimizer={lr: 1}"}),
            "--set 'optimizer={lr: 1}': key 'optimizer': is a section; give "
            "one of its keys");
  EXPECT_TRUE(errorOf("", {"seed=["})
                  .starts_with("--set 'seed=[': key 'seed': is not a valid "
                               "value: "));
}

TEST(Recipe, Files) {
  EXPECT_EQ(loadRecipe("/no/such.yaml").message(),
            "/no/such.yaml: No such file or directory");
  EXPECT_EQ(loadRecipe("/").message(), "/: is not a regular file");
}

} // namespace
} // namespace tessera::recipe
