#include "runtime/train/Metrics.h"
#include "test/runtime/train/FakeTrainModel.h"

#include <cstring>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace tessera;
using namespace tessera::testing;

static MetricsRecord exampleRecord() {
  MetricsRecord record;
  record.step = 7;
  record.loss = 0.1f + 1e-8f;
  record.gradNorm = 1e-30f;
  record.lr = 2.9999998e-4f;
  record.tokens = 4096;
  record.tokensPerSecond = 12345.678;
  record.stepSeconds = 0.25;
  record.goodput = 12000.25;
  record.mfu = 0.4321;
  record.hfu = 0.5;
  record.peakBytes = 1 << 30;
  record.evalLoss = 5.5;
  return record;
}

TEST(Metrics, RecordIsJsonAndFloatsReadBackExactly) {
  MetricsRecord record = exampleRecord();
  auto json = nlohmann::json::parse(printMetrics(record));
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(std::stof(json["loss"].dump()), *record.loss);
  EXPECT_EQ(json["loss"].get<float>(), *record.loss);
  EXPECT_EQ(json["grad_norm"].get<float>(), *record.gradNorm);
  EXPECT_EQ(json["lr"].get<float>(), *record.lr);
  EXPECT_EQ(json["tokens"], 4096);
  EXPECT_EQ(json["mfu"], 0.4321);
  EXPECT_EQ(json["hfu"], 0.5);
  EXPECT_EQ(json["goodput"], 12000.2); // one decimal
  EXPECT_EQ(json["eval_loss"], 5.5);
  record.loss = NAN;
  EXPECT_TRUE(nlohmann::json::parse(printMetrics(record))["loss"].is_null());
}

TEST(Metrics, ColumnsOfSampledAnswersHaveNames) {
  MetricsRecord record = exampleRecord();
  EXPECT_FALSE(nlohmann::json::parse(printMetrics(record)).contains("policy"));
  // Without a reference model.
  record.policy = {0.25f, 1.5f, 0.125f, -1, -3, 0.5f};
  auto policy = nlohmann::json::parse(printMetrics(record))["policy"];
  EXPECT_EQ(policy, (nlohmann::json{{"clip_fraction", 0.25},
                                    {"ratio", 1.5},
                                    {"kl", 0.125},
                                    {"advantage", -1},
                                    {"log_prob", -3},
                                    {"mismatch", 0.5}}));
  record.policy.push_back(7);
  EXPECT_EQ(
      nlohmann::json::parse(printMetrics(record))["policy"]["kl_reference"], 7);
  // With a value head, and without a reference model.
  record.policy = {1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16, 17};
  policy = nlohmann::json::parse(printMetrics(record))["policy"];
  EXPECT_FALSE(policy.contains("kl_reference"));
  EXPECT_EQ(policy["policy_loss"], 11);
  EXPECT_EQ(policy["explained_variance"], 17);
  record.policy.insert(record.policy.begin() + 6, 7);
  policy = nlohmann::json::parse(printMetrics(record))["policy"];
  EXPECT_EQ(policy["kl_reference"], 7);
  EXPECT_EQ(policy["policy_loss"], 11);
  record.policy = {0.25f, 1.5f, 0.125f, -1, -3, 0.5f};
  EXPECT_NE(progressLine(record, 9, 1, {}).find("  kl 1.25e-01"),
            std::string::npos);
  record.kto = {1, 2, 3, 4, NAN};
  auto kto = nlohmann::json::parse(printMetrics(record))["kto"];
  EXPECT_EQ(kto["undesirable_log_prob"], 4);
  EXPECT_TRUE(kto["kl"].is_null());
}

TEST(Metrics, RouterTableIsListsByLayer) {
  MetricsRecord record = exampleRecord();
  EXPECT_FALSE(nlohmann::json::parse(printMetrics(record)).contains("router"));
  record.router = {1.5f, 0, 0.25f, 2,   9, 1.125f, //
                   3,    2, 0,     NAN, 8, 1};
  auto router = nlohmann::json::parse(printMetrics(record))["router"];
  EXPECT_EQ(router.size(), 6u);
  EXPECT_EQ(router["max_load"], (std::vector<float>{1.5f, 3}));
  EXPECT_EQ(router["dead"], (std::vector<float>{0, 2}));
  EXPECT_EQ(router["dropped"], (std::vector<float>{0.25f, 0}));
  EXPECT_EQ(router["entropy"][0], 2);
  EXPECT_TRUE(router["entropy"][1].is_null());
  EXPECT_EQ(router["z"], (std::vector<float>{9, 8}));
  EXPECT_EQ(router["balance"], (std::vector<float>{1.125f, 1}));
  EXPECT_NE(progressLine(record, 107, 0.5, {}).find("  load 3.0x"),
            std::string::npos);
}

TEST(Metrics, ExactLineTellsNeighbouringFloatsApart) {
  MetricsRecord record = exampleRecord();
  std::string line = printExactMetrics(record);
  record.loss = std::nextafterf(*record.loss, 1);
  EXPECT_NE(printExactMetrics(record), line);
}

TEST(Metrics, ProgressLine) {
  MetricsRecord record = exampleRecord();
  EXPECT_EQ(progressLine(record, 107, 0.5, 5.5),
            "step 7/107  loss 0.1000  held-out 5.5000  lr 3.00e-04  12.3k "
            "tokens/s  mfu 43.2 %  eta 0:50");
  record.mfu.reset();
  EXPECT_EQ(progressLine(record, 7, 0.5, std::nullopt),
            "step 7/7  loss 0.1000  lr 3.00e-04  12.3k tokens/s");
}

TEST(Metrics, Texts) {
  EXPECT_EQ(shortNumber(0), "0");
  EXPECT_EQ(shortNumber(999), "999");
  EXPECT_EQ(shortNumber(999.6), "1.00k");
  EXPECT_EQ(shortNumber(9999), "10.0k");
  EXPECT_EQ(shortNumber(123456), "123k");
  EXPECT_EQ(shortNumber(124439808), "124M");
  EXPECT_EQ(byteText(1023), "1023 B");
  EXPECT_EQ(byteText(1536), "1.50 KiB");
  EXPECT_EQ(durationText(59.6), "1:00");
  EXPECT_EQ(durationText(3723), "1:02:03");
}

TEST(Metrics, LogIsCutBackToTheStepItResumesFrom) {
  ScratchDirectory run;
  std::string path = run / "metrics.jsonl";
  MetricsRecord record;
  {
    auto log = MetricsLog::open(run.path, 0);
    ASSERT_TRUE(log.ok()) << log.message();
    for (uint64_t step = 0; step <= 12; ++step) {
      record.step = step;
      ASSERT_TRUE(log->append(record).ok());
    }
  }
  std::ofstream(path, std::ios::app) << "{\"step\":13";
  ASSERT_TRUE(MetricsLog::open(run.path, 12).ok());
  auto count = [&] {
    std::ifstream file(path);
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  };
  EXPECT_EQ(count(), 13);
  ASSERT_TRUE(MetricsLog::open(run.path, 9).ok());
  EXPECT_EQ(count(), 10);
  EXPECT_FALSE(MetricsLog::open(run / "absent", 0).ok());
}
