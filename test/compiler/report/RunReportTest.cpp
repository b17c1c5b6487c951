#include <gtest/gtest.h>

#include "compiler/report/RunReport.h"
#include "runtime/train/Metrics.h"

using namespace tessera;
using namespace tessera::report;

namespace {

std::string lineOf(std::uint64_t step, std::optional<double> loss,
                   std::optional<double> evalLoss = {}) {
  MetricsRecord record;
  record.step = step;
  record.loss = loss;
  record.evalLoss = evalLoss;
  return printMetrics(record) + "\n";
}

} // namespace

// What the trainer writes is what the report reads.
TEST(RunReport, ReadsWhatTrainingWrites) {
  MetricsRecord record;
  record.step = 2;
  record.loss = 5.5;
  record.gradNorm = 0.25;
  record.lr = 1e-3;
  record.tokens = 100;
  record.tokensPerSecond = 50;
  record.stepSeconds = 2;
  record.router = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  auto json = metricsColumns(lineOf(0, {}, 6.5) + printMetrics(record) + "\n",
                             "metrics.jsonl");
  ASSERT_TRUE(json.ok()) << json.message();
  EXPECT_EQ((*json)["step"], Json({0, 2}));
  EXPECT_EQ((*json)["loss"], Json({nullptr, 5.5}));
  EXPECT_EQ((*json)["eval_loss"], Json({6.5, nullptr}));
  EXPECT_EQ((*json)["step_time"], Json({nullptr, 2.0}));
  EXPECT_EQ((*json)["tokens_per_s"], Json({nullptr, 50.0}));
  EXPECT_EQ((*json)["router.dead"][1], Json({2, 8}));
  EXPECT_TRUE((*json)["router.dead"][0].is_null());
}

TEST(RunReport, LongRunsAreThinned) {
  std::string text;
  for (std::uint64_t step = 1; step <= 100; ++step)
    text += lineOf(step, 1.0, step == 50 ? std::optional(2.0) : std::nullopt);
  auto json = metricsColumns(text, "m", 10);
  ASSERT_TRUE(json.ok()) << json.message();
  EXPECT_EQ((*json)["every"], 10);
  EXPECT_EQ((*json)["step"].size(), 11u); // the evaluation as well
}

TEST(RunReport, NamesTheLineThatIsWrong) {
  auto json =
      metricsColumns(lineOf(1, 1.0) + "nonsense\n" + lineOf(2, 1.0), "m");
  ASSERT_FALSE(json.ok());
  EXPECT_EQ(json.message(), "m:2: not a record of metrics");
  EXPECT_TRUE(metricsColumns(lineOf(1, 1.0) + "{\"st", "m").ok());
}

TEST(RunReport, OfADirectoryWithoutRun) {
  auto json = runReport("/nonexistent");
  ASSERT_FALSE(json.ok());
  EXPECT_NE(json.message().find("/nonexistent/metrics.jsonl"),
            std::string::npos);
}
