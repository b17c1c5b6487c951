#include "runtime/support/StartPhases.h"

#include <regex>
#include <thread>

#include <gtest/gtest.h>

using namespace tessera;

TEST(StartPhases, AddUpToAllOfTheTime) {
  StartPhases phases;
  phases.end("process");
  phases.end("weights");
  phases.end("first token");
  const std::string text = phases.describe();
  std::smatch found;
  ASSERT_TRUE(std::regex_match(
      text, found,
      std::regex(R"((\d+\.\d\d) s \(process (\d+\.\d\d), weights (\d+\.\d\d), )"
                 R"(first token (\d+\.\d\d)\))")))
      << text;
  double sum = 0;
  for (int i = 2; i <= 4; ++i)
    sum += std::stod(found[i]);
  EXPECT_NEAR(sum, std::stod(found[1]), 0.021) << text; // each is rounded
}

TEST(StartPhases, BeginWithTheProcess) {
  // Also what was before the object counts.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  StartPhases phases;
  phases.end("a");
  EXPECT_GE(std::stod(phases.describe()), 0.08);
}
