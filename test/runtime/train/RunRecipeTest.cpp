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
schedule: {name: linear, warmup: 7, total: 123, min_ratio: 0.25}
batch: {micro: 4, accumulate: 2, sequence: 64}
precision: {compute: bf16}
recompute: none
dropout: {rate: null}
seed: -3
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
  EXPECT_EQ(recipe->hyper, expected);
  EXPECT_EQ(recipe->optimizer, "sgd");
  EXPECT_EQ(recipe->compute, "bf16");
  EXPECT_EQ(recipe->micro, 4);
  EXPECT_EQ(recipe->accumulate, 2);
  EXPECT_EQ(recipe->sequence, 64);
  EXPECT_EQ(recipe->seed, -3);
  EXPECT_EQ(recipe->trainData, "some/dir");
  EXPECT_EQ(recipe->evalData, "");
  EXPECT_EQ(recipe->evalEvery, 11);
  EXPECT_EQ(recipe->evalBatches, 12);
  EXPECT_EQ(recipe->checkpointEvery, 13);
  EXPECT_EQ(recipe->checkpointKeep, 14);
}

TEST(RunRecipe, AnEmptyRecipeIsTheDefaults) {
  auto recipe = parseRunRecipe("");
  ASSERT_TRUE(recipe.ok()) << recipe.message();
  EXPECT_EQ(recipe->slot(HyperSlot::lr), 3e-4f);
  EXPECT_EQ(recipe->totalSteps(), 1000u);
  EXPECT_EQ(recipe->seed, 1337);
}

TEST(RunRecipe, PrintedRecipeReadsBackTheSame) {
  auto recipe = parseRunRecipe(kFull);
  ASSERT_TRUE(recipe.ok());
  for (const char *each :
       {"optimizer.lr=0.1", "optimizer.momentum=0.123456789",
        "schedule.total=77", "data.eval=other dir", "data.train=null",
        "seed=9223372036854775807", "eval.every=0"})
    ASSERT_TRUE(setRecipeKey(*recipe, each, "").ok()) << each;
  auto text = printRunRecipe(kFull, *recipe);
  ASSERT_TRUE(text.ok());
  auto again = parseRunRecipe(*text);
  ASSERT_TRUE(again.ok()) << again.message() << *text;
  EXPECT_EQ(again->hyper, recipe->hyper);
  EXPECT_EQ(again->seed, INT64_MAX);
  EXPECT_EQ(again->evalData, "other dir");
  EXPECT_EQ(again->trainData, "");
  EXPECT_EQ(again->evalEvery, 0);
  EXPECT_EQ(again->compute, "bf16");
  EXPECT_NE(text->find("name: linear"), std::string::npos)
      << "what was compiled in stays";
}

TEST(RunRecipe, ValuesOutOfRangeAreRefused) {
  for (const char *bad :
       {"optimizer.lr=-1", "optimizer.lr=nan", "optimizer.lr=inf",
        "optimizer.lr=", "optimizer.lr=1x", "optimizer.lr= 1",
        "optimizer.betas=0.9", "optimizer.betas=[0.9, 1.0]",
        "optimizer.betas=[0.9, 0.95, 0.99]",

        "schedule.total=0", "schedule.total=1.5", "schedule.warmup=-1",
        "schedule.total=20000000", "schedule.min_ratio=1.5", "eval.batches=0",
        "checkpoint.every=-1", "checkpoint.keep=x", "seed=1.5",
        "seed=9223372036854775808"})
    EXPECT_NE(set(bad).find("must be"), std::string::npos) << bad;
  EXPECT_NE(set("optimizer.momentum=1", kFull).find("must be"),
            std::string::npos);
  EXPECT_NE(set("optimizer.lr").find("KEY=VALUE"), std::string::npos);
}

TEST(RunRecipe, UnknownAndCompiledKeysSayWhatToDo) {
  EXPECT_EQ(set("optimizer.lrr=1"),
            "unknown key 'optimizer.lrr', did you mean 'optimizer.lr'?");
  for (const char *key : {"batch.micro", "batch.accumulate", "batch.sequence",
                          "precision.compute", "recompute", "dropout.rate",
                          "optimizer.name", "schedule.name"})
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
  EXPECT_TRUE(refused("optimizer.betas=0.9,0.9", plainSgd));
  EXPECT_TRUE(refused("optimizer.eps=1e-6", plainSgd));
  EXPECT_TRUE(refused("optimizer.momentum=0.9", plainSgd));
  EXPECT_TRUE(refused("optimizer.momentum=0.9", ""));
  EXPECT_TRUE(refused("schedule.min_ratio=0", "schedule: {name: constant}"));
  EXPECT_EQ(set("optimizer.momentum=0.9", kFull), "");
  EXPECT_EQ(set("optimizer.momentum=0", kFull), "");
  EXPECT_EQ(set("optimizer.betas=0.9,0.9"), "");
}

TEST(RunRecipe, BrokenYamlIsAnErrorWithItsLine) {
  auto recipe = parseRunRecipe("optimizer:\n  lr: [1\n");
  ASSERT_FALSE(recipe.ok());
  EXPECT_NE(recipe.message().find("line"), std::string::npos);
  EXPECT_FALSE(parseRunRecipe("optimizer: {lr: fast}").ok());
  EXPECT_TRUE(parseRunRecipe("[1, 2]").ok()) << "no key of ours is in a list";
}
