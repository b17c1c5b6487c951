#include "runtime/train/RunRecipe.h"

#include <gtest/gtest.h>

using namespace tessera;

namespace {

constexpr const char *kFull = R"(optimizer:
  name: sgd
  lr: 6.0e-4
  betas: [0.8, 0.9]
  eps: 1.0e-6
  weight_decay: 0.2
  momentum: 0.7
  clip: 0.5
lr_schedule: {name: linear, warmup: 7, total: 123, min_ratio: 0.25}
batch: {micro: 4, accumulate: 2, sequence: 64}
precision: {compute: bf16}
recompute: none
dropout: {rate: null}
seed: 3
data: {train: some/dir, eval: null}
eval: {every: 11, batches: 12}
checkpoint: {every: 13, keep: 14}
)";

std::string set(std::string_view assignment, std::string_view yaml = "") {
  RunRecipe recipe = parseRunRecipe(yaml).take();
  return setRecipeKey(recipe, assignment, "REBUILD").message();
}

} // namespace

TEST(RunRecipe, FillsTheDocumentedSlots) {
  auto recipe = parseRunRecipe(kFull);
  ASSERT_TRUE(recipe.ok()) << recipe.message();
  std::array<float, kHyperSlots> expected = {6e-4f, 0.8f, 0.9f, 1e-6f, 0.2f,
                                             0.5f,  0.7f, 7,    123,   0.25f};
  EXPECT_EQ(recipe->hyper(), expected);
  EXPECT_TRUE(recipe->hasMomentum);
}

TEST(RunRecipe, AnEmptyRecipeIsTheDefaults) {
  auto recipe = parseRunRecipe("");
  ASSERT_TRUE(recipe.ok()) << recipe.message();
  EXPECT_EQ(recipe->values, recipe::Recipe());
  EXPECT_EQ(recipe->hyper()[std::size_t(HyperSlot::lr)], 3e-4f);
  EXPECT_FALSE(recipe->hasMomentum);
}

TEST(RunRecipe, PrintedRecipeReadsBackTheSame) {
  auto recipe = parseRunRecipe(kFull);
  ASSERT_TRUE(recipe.ok());
  for (const char *each :
       {"optimizer.lr=0.1", "optimizer.momentum=0.123456789",
        "lr_schedule.total=77", "data.eval=other dir", "data.train=null",
        "seed=9223372036854775807", "eval.every=0"})
    ASSERT_TRUE(setRecipeKey(*recipe, each, "").ok()) << each;
  EXPECT_EQ(recipe->values.seed, INT64_MAX);
  EXPECT_EQ(recipe->values.data.eval, "other dir");
  EXPECT_EQ(recipe->values.data.train, std::nullopt);
  auto again = parseRunRecipe(recipe->print());
  ASSERT_TRUE(again.ok()) << again.message() << recipe->print();
  EXPECT_EQ(again->values, recipe->values);
  // A folder's name may be anything; the run goes on, and can be resumed.
  recipe->values.data.eval = "a\xff";
  again = parseRunRecipe(recipe->print());
  ASSERT_TRUE(again.ok()) << again.message();
  EXPECT_EQ(again->values.data.eval, std::nullopt);
}

TEST(RunRecipe, ValuesOutOfRangeAreRefused) {
  for (const char *bad :
       {"optimizer.lr=-1", "optimizer.lr=nan", "optimizer.lr=inf",
        "optimizer.lr=", "optimizer.lr=1x", "optimizer.lr='1'",
        "optimizer.betas=0.9", "optimizer.betas=[0.9, 1.0]",
        "optimizer.betas=[0.9, 0.95, 0.99]",
        // What fp32 rounds to 1.
        "optimizer.betas=[0.9, 0.99999999]", "lr_schedule.total=0",
        "lr_schedule.total=1.5", "lr_schedule.warmup=-1",
        "lr_schedule.total=20000000", "lr_schedule.min_ratio=1.5",
        "eval.batches=0", "checkpoint.every=-1", "checkpoint.keep=x",
        "seed=1.5", "seed=9223372036854775808"})
    EXPECT_NE(set(bad).find("must be"), std::string::npos) << bad;
  EXPECT_NE(set("optimizer.momentum=1", kFull).find("must be"),
            std::string::npos);
  EXPECT_NE(set("optimizer.lr").find("KEY=VALUE"), std::string::npos);
}

TEST(RunRecipe, UnknownAndCompiledKeysSayWhatToDo) {
  EXPECT_EQ(set("optimizer.lrr=1"),
            "--set 'optimizer.lrr=1': key 'optimizer.lrr': is not a recipe "
            "key, did you mean 'optimizer.lr'?");
  for (const char *key : {"batch.micro", "batch.accumulate", "batch.sequence",
                          "precision.compute", "recompute", "dropout.rate",
                          "optimizer.name", "lr_schedule.name", "task",
                          "preference.beta", "policy.clip_low", "kto.beta"})
    EXPECT_EQ(set(std::string(key) + "=1"),
              "'" + std::string(key) +
                  "' is compiled into this program; change it in the recipe "
                  "and run: REBUILD");
}

TEST(RunRecipe, KeysThatTheProgramDoesNotReadAreRefused) {
  auto refused = [](std::string_view assignment, std::string_view yaml) {
    return set(assignment, yaml).find("means nothing to this program") !=
           std::string::npos;
  };
  constexpr const char *plainSgd = "optimizer: {name: sgd}";
  EXPECT_TRUE(refused("optimizer.betas=[0.9, 0.9]", plainSgd));
  EXPECT_TRUE(refused("optimizer.eps=1e-6", plainSgd));
  EXPECT_TRUE(refused("optimizer.momentum=0.9", plainSgd));
  EXPECT_TRUE(refused("optimizer.momentum=0.9", ""));
  EXPECT_TRUE(
      refused("lr_schedule.min_ratio=0", "lr_schedule: {name: constant}"));
  EXPECT_EQ(set("optimizer.momentum=0.9", kFull), "");
  EXPECT_EQ(set("optimizer.momentum=0", kFull), "");
  EXPECT_EQ(set("optimizer.betas=[0.9, 0.9]"), "");
}

TEST(RunRecipe, AResumedAdapterIsTheSame) {
  recipe::Recipe::Adapter before;
  before.kind = recipe::AdapterKind::Dora;
  before.target = {"q_proj", "v_proj"};
  EXPECT_TRUE(checkSameAdapter("step-000003", before, before).ok());
  auto message = [&](auto change) {
    recipe::Recipe::Adapter now = before;
    change(now);
    return checkSameAdapter("step-000003", before, now).message();
  };
  // Of v_proj nothing would be read.
  EXPECT_EQ(message([](auto &a) { a.target = {"q_proj"}; }),
            "'step-000003' was trained with another adapter.target than this "
            "program has; resume with the program that wrote it, or merge the "
            "adapter with tessera export --merge and start a new run with "
            "--init-from");
  for (auto change : std::initializer_list<void (*)(recipe::Recipe::Adapter &)>{
           [](auto &a) { a.kind = recipe::AdapterKind::Lora; },
           [](auto &a) { a.ranks = {"self_attn.q_proj=8"}; },
           [](auto &a) { a.scaling = recipe::AdapterScaling::Root; },
           [](auto &a) { a.modulesToSave = {"lm_head"}; }})
    EXPECT_NE(message(change), "");
  EXPECT_EQ(message([](auto &a) { a.dropout = 0.1; }), "");
}

TEST(RunRecipe, AResumedBaseHasTheSameCodes) {
  recipe::Recipe before;
  before.adapter.kind = recipe::AdapterKind::Lora;
  before.adapter.base = recipe::AdapterBase::Int4;
  recipe::Recipe now = before;
  EXPECT_TRUE(checkSameBase("step-000003", before, now).ok());
  // Scales and zero points of 64 have the shape of scales of 32.
  now.inference.group = 64;
  now.inference.zeros = recipe::ZeroPoints::Groups;
  EXPECT_EQ(checkSameBase("step-000003", before, now).message(),
            "'step-000003' has a base of other codes (adapter.base, "
            "inference.group and inference.zeros) than this program; resume "
            "with the program that wrote it");
  RunRecipe recipe{before, false};
  EXPECT_NE(setRecipeKey(recipe, "inference.group=64", "").message(), "");
  recipe.values.adapter.base = recipe::AdapterBase::Bf16;
  EXPECT_TRUE(setRecipeKey(recipe, "inference.group=64", "").ok());
}

TEST(RunRecipe, BrokenYamlIsAnErrorWithItsLine) {
  auto recipe = parseRunRecipe("optimizer:\n  lr: [1\n");
  ASSERT_FALSE(recipe.ok());
  EXPECT_TRUE(recipe.message().starts_with("the artifact's recipe:3:1: "))
      << recipe.message();
  EXPECT_FALSE(parseRunRecipe("optimizer: {lr: fast}").ok());
  EXPECT_FALSE(parseRunRecipe("[1, 2]").ok());
}
