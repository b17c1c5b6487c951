#include "runtime/support/StartPhases.h"

#include <regex>

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
  // What a second object counts is no less than what a first one did.
  StartPhases first;
  first.end("a");
  StartPhases second;
  second.end("a");
  EXPECT_GE(std::stod(second.describe()) + 0.021, std::stod(first.describe()));
}
