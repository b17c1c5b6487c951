// Differences, checked by applying them, and against the length of the longest
// common subsequence.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "compiler/report/IrPhases.h"
#include "compiler/report/LineDiff.h"

using namespace tessera::report;

namespace {

using Lines = std::vector<std::uint64_t>;

/// Lines that are kept; fails if the runs do not turn `before` into `after`.
std::size_t apply(const Lines &before, const Lines &after,
                  const std::vector<DiffRun> &runs) {
  std::size_t a = 0, b = 0, kept = 0;
  for (const DiffRun &run : runs) {
    for (std::uint32_t i = 0; i < run.keep; ++i, ++a, ++b)
      EXPECT_EQ(before.at(a), after.at(b));
    kept += run.keep;
    a += run.remove;
    b += run.add;
  }
  EXPECT_EQ(a, before.size());
  EXPECT_EQ(b, after.size());
  return kept;
}

std::size_t longestCommon(const Lines &before, const Lines &after) {
  std::vector<std::vector<std::size_t>> best(
      before.size() + 1, std::vector<std::size_t>(after.size() + 1, 0));
  for (std::size_t i = 0; i < before.size(); ++i)
    for (std::size_t k = 0; k < after.size(); ++k)
      best[i + 1][k + 1] = before[i] == after[k]
                               ? best[i][k] + 1
                               : std::max(best[i][k + 1], best[i + 1][k]);
  return best.back().back();
}

} // namespace

TEST(LineDiff, OfEqualAndEmptyTexts) {
  EXPECT_TRUE(diffLines({}, {}).empty());
  const Lines lines = {1, 2, 3};
  EXPECT_EQ(diffLines(lines, lines), (std::vector<DiffRun>{{3, 0, 0}}));
  EXPECT_EQ(diffLines(lines, {}), (std::vector<DiffRun>{{0, 3, 0}}));
  EXPECT_EQ(diffLines({}, lines), (std::vector<DiffRun>{{0, 0, 3}}));
}

TEST(LineDiff, OfOneChange) {
  EXPECT_EQ(diffLines(Lines{1, 2, 3, 4}, Lines{1, 2, 9, 9, 4}),
            (std::vector<DiffRun>{{2, 1, 2}, {1, 0, 0}}));
}

// Few distinct lines: none is unique, so Myers' algorithm does all of it and
// its result is the shortest.
TEST(LineDiff, IsShortestWithoutUniqueLines) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    Lines before, after;
    for (std::size_t i = random() % 40; i > 0; --i)
      before.insert(before.end(), 2, random() % 3);
    for (std::size_t i = random() % 40; i > 0; --i)
      after.insert(after.end(), 2, random() % 3);
    const auto runs = diffLines(before, after);
    EXPECT_EQ(apply(before, after, runs), longestCommon(before, after));
  }
}

TEST(LineDiff, OfManyLinesIsRight) {
  std::mt19937 random(2);
  for (const std::size_t kinds : {3UL, 50UL, 5000UL}) {
    Lines before(3000);
    for (std::uint64_t &line : before)
      line = random() % kinds;
    Lines after = before;
    for (int edit = 0; edit < 200; ++edit)
      after[random() % after.size()] = random() % kinds;
    std::rotate(after.begin(), after.begin() + 500, after.begin() + 600);
    apply(before, after, diffLines(before, after));
  }
}

TEST(IrPhases, LocationsAreLeftOut) {
  EXPECT_EQ(withoutLocations("#loc = loc(\"x\")\n"
                             "  %0 = f(%a) loc(callsite(#loc1 at \"a)b\"))\n"
                             "  g(%b loc(unknown)) \"s loc(x)\" loc(#loc2)\n"),
            "  %0 = f(%a)\n  g(%b) \"s loc(x)\"\n");
}

TEST(IrPhases, NumbersOfValuesAreNoChange) {
  const auto keys =
      lineKeys("%1 = f %12#0 : 8\n%2 = f %3#1 : 8\n%2 = f %3 : 9\n");
  ASSERT_EQ(keys.size(), 3u);
  EXPECT_EQ(keys[0], keys[1]);
  EXPECT_NE(keys[1], keys[2]);
}

TEST(IrPhases, EachPhaseFollowsThatOfItsDevice) {
  const Json json = phasesJson({{"07-selection.mlir", "a\n"},
                                {"08-kernels.cuda-sm_80.mlir", "a\nb\n"},
                                {"08-kernels.mlir", "c\n"},
                                {"09-planning.cuda-sm_80.mlir", "b\n"},
                                {"09-planning.mlir", "c\n"}});
  EXPECT_FALSE(json[0].contains("before"));
  EXPECT_EQ(json[1]["before"], 0);
  EXPECT_EQ(json[2]["before"], 0);
  EXPECT_EQ(json[3]["before"], 1);
  EXPECT_EQ(json[4]["before"], 2);
  EXPECT_EQ(json[1]["diff"], Json({1, 0, 1}));
  EXPECT_EQ(json[3]["lines"], 1);
}

TEST(IrPhases, TheLongestAreLeftOutOfAPage) {
  std::string noise;
  std::mt19937 random(3);
  for (int i = 0; i < 4000; ++i)
    noise += char('a' + random() % 26);
  const Json json =
      phasesJson({{"00-a.mlir", noise + "\n"}, {"01-b.mlir", "x\n"}}, 1000);
  EXPECT_FALSE(json[0].contains("text"));
  EXPECT_TRUE(json[1].contains("text"));
}
