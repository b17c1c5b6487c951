#include <gtest/gtest.h>

#include <vector>

#include "compiler/report/EvalReport.h"

using namespace tessera::report;

static const char *kResults =
    R"({"model": "m", "results": [{"task": "a"}, {"task": "b"}, {"task": "b"}]})";

TEST(EvalReport, HasResultsAndSamples) {
  const std::vector<std::string> samples = {R"({"task":"a","output":"<x>"})"};
  const Json data = evalReport(kResults, samples);
  EXPECT_EQ(data["kind"], "eval");
  EXPECT_EQ(data["title"], "m");
  EXPECT_EQ(data["results"].size(), 3u);
  EXPECT_EQ(data["samples"][0]["output"], "<x>");
  EXPECT_EQ(data["samples_left_out"], 0);
}

TEST(EvalReport, EachTaskHasItsShareOfTheLimit) {
  const std::string line = R"({"task":"a"})", other = R"({"task":"b"})";
  const std::vector<std::string> samples = {line, line, line, other};
  const Json data = evalReport(kResults, samples, 4 * line.size());
  ASSERT_EQ(data["samples"].size(), 3u);
  EXPECT_EQ(data["samples"][2]["task"], "b");
  EXPECT_EQ(data["samples_left_out"], 1);
}
