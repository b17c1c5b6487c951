#include "tools/iopddl/ReadIopddl.h"

#include <cstdio>
#include <fstream>

#include <gtest/gtest.h>
#include <zlib.h>

using namespace tessera;

namespace {

constexpr const char *kGood =
    R"({"problem": {"name": "two", "usage_limit": 20, "extra": [{"a": [1.5]}],
    "nodes": {"intervals": [[0, 4], []], "costs": [[1, 2], [3]],
              "usages": [[7, 8], [9]]},
    "edges": {"nodes": [[1, 0]], "costs": [[5, 2000000000000000000]]}}})";

std::string replaced(std::string what, const std::string &by) {
  std::string text = kGood;
  text.replace(text.find(what), what.size(), by);
  return text;
}

TEST(ReadIopddl, ReadsWhatStandsThere) {
  StatusOr<solver::Problem> problem = iopddl::parseProblem(kGood, "x.json");
  ASSERT_TRUE(problem.ok()) << problem.message();
  EXPECT_EQ(problem->name, "two");
  EXPECT_EQ(problem->usageLimit, 20);
  ASSERT_EQ(problem->nodes.size(), 2u);
  EXPECT_EQ(problem->nodes[0].end, 4);
  EXPECT_EQ(problem->nodes[0].usages, (std::vector<std::int64_t>{7, 8}));
  EXPECT_EQ(problem->nodes[1].begin, problem->nodes[1].end);
  ASSERT_EQ(problem->edges.size(), 1u);
  EXPECT_EQ(problem->edges[0].from, 1);
  EXPECT_EQ(problem->edges[0].costs,
            (std::vector<solver::Cost>{5, solver::kInfinite}));
}

TEST(ReadIopddl, ErrorsNameThePlace) {
  auto diagnostic = [](const std::string &text) {
    return iopddl::parseProblem(text, "x.json").message();
  };
  EXPECT_EQ(diagnostic("{\"problem\": {\"nodes\""),
            "x.json: byte 21: not valid JSON");
  EXPECT_EQ(diagnostic("[]"),
            "x.json: problem.nodes.costs is missing or empty");
  EXPECT_EQ(diagnostic(replaced("[[1, 2], [3]]", "[[1, 2.5], [3]]")),
            "x.json: problem.nodes.costs holds a number with a fraction or of "
            "more than 64 bits");
  EXPECT_EQ(diagnostic(replaced("[[1, 2], [3]]", "[[1, -2], [3]]")),
            "x.json: problem.nodes.costs holds a negative number");
  EXPECT_EQ(diagnostic(replaced("[[1, 2], [3]]", "[[1, [2]], [3]]")),
            "x.json: problem.nodes.costs holds a list three deep");
  EXPECT_EQ(diagnostic(replaced("[[1, 2], [3]]", "[[1, 2], 3]")),
            "x.json: problem.nodes.costs holds a number");
  EXPECT_EQ(diagnostic(replaced("[[0, 4], []]", "[[0, 4]]")),
            "x.json: problem.nodes has 1 intervals, 2 costs and 2 usages; the "
            "numbers must be equal");
  EXPECT_EQ(diagnostic(replaced("[[0, 4], []]", "[[0, 4], [1]]")),
            "x.json: problem.nodes.intervals: node 1 has 1 numbers instead of "
            "two or none");
  EXPECT_EQ(diagnostic(replaced("[[1, 0]]", "[[1, 2]]")),
            "x.json: problem.edges.nodes: edge 0 is not two of 2 nodes");
  EXPECT_EQ(diagnostic(replaced("[[1, 0]]", "[]")),
            "x.json: problem.edges has 0 nodes and 1 costs; the "
            "numbers must be equal");
  EXPECT_EQ(diagnostic(replaced("[[1, 0]]", "[[1, 1]]")),
            "x.json: edge 0 joins node 1 with itself; add its costs to the "
            "node's");
  EXPECT_EQ(diagnostic(replaced("20", "\"20\"")),
            "x.json: problem.usage_limit holds a string");
}

TEST(ReadIopddl, PlainAndCompressedFiles) {
  const std::string plain = testing::TempDir() + "/iopddl.json";
  std::ofstream(plain) << kGood;
  const std::string packed = plain + ".gz";
  gzFile file = gzopen(packed.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  gzputs(file, kGood);
  gzclose(file);
  EXPECT_TRUE(iopddl::readProblem(plain).ok());
  EXPECT_TRUE(iopddl::readProblem(packed).ok());

  std::ifstream whole(packed, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(whole), {}};
  std::ofstream(packed, std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  EXPECT_EQ(iopddl::readProblem(packed).message(),
            packed + ": cannot be read, or is truncated or damaged");
  EXPECT_EQ(iopddl::readProblem("/nowhere").message(),
            "/nowhere: cannot be opened");
}

TEST(ReadIopddl, WritesChoices) {
  EXPECT_EQ(iopddl::formatChoice(std::vector{3, 0, 12}), "[3, 0, 12]");
  EXPECT_EQ(iopddl::formatChoice({}), "[]");
}

} // namespace
