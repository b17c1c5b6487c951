// The journal reads back what was written, whatever a crash left of it.
#include "runtime/rl/SampleJournal.h"
#include "runtime/support/Hash.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tessera::rl {
namespace {

namespace fs = std::filesystem;

const JournalSource kSource{.seed = 7, .prompts = 0x1234};

Group groupOf(uint64_t number) {
  Group group;
  group.number = number;
  group.prompt = number % 3;
  group.promptTokens = {1, 2};
  group.samples = {{.tokens = {3, 4},
                    .logProbs = {-0.1f, -1.17549435e-38f},
                    .versions = {5, 6},
                    .isCut = true,
                    .reward = 0.1 + double(number)},
                   {.tokens = {9},
                    .logProbs = {-0.0f},
                    .referenceLogProbs = {-0.3f},
                    .versions = {6},
                    .reward = std::nullopt}};
  return group;
}

void expectSame(const Group &group, const Group &other) {
  EXPECT_EQ(printGroup(group), printGroup(other));
  EXPECT_EQ(group.number, other.number);
  EXPECT_EQ(group.prompt, other.prompt);
  EXPECT_EQ(group.promptTokens, other.promptTokens);
  ASSERT_EQ(group.samples.size(), other.samples.size());
  for (std::size_t i = 0; i < group.samples.size(); ++i) {
    EXPECT_EQ(group.samples[i].tokens, other.samples[i].tokens);
    EXPECT_EQ(group.samples[i].logProbs, other.samples[i].logProbs);
    EXPECT_EQ(std::signbit(group.samples[i].logProbs[0]),
              std::signbit(other.samples[i].logProbs[0]));
    EXPECT_EQ(group.samples[i].referenceLogProbs,
              other.samples[i].referenceLogProbs);
    EXPECT_EQ(group.samples[i].versions, other.samples[i].versions);
    EXPECT_EQ(group.samples[i].isCut, other.samples[i].isCut);
    EXPECT_EQ(group.samples[i].reward, other.samples[i].reward);
  }
}

class Journal : public ::testing::Test {
protected:
  void SetUp() override {
    folder = ::testing::TempDir() + "/journal";
    fs::remove_all(folder);
    fs::create_directory(folder);
    path = folder + "/" + kJournalFile;
  }
  void write(uint64_t from, uint64_t to) {
    std::vector<Group> groups;
    auto journal = SampleJournal::open(folder, kSource, 0, groups);
    ASSERT_TRUE(journal.ok()) << journal.message();
    for (uint64_t i = from; i < to; ++i)
      ASSERT_TRUE(journal->append(groupOf(i)).ok());
  }
  std::string text() const {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void replace(const std::string &text) const {
    std::ofstream(path, std::ios::trunc) << text;
  }
  std::string errorOf() const {
    std::vector<Group> groups;
    auto journal = SampleJournal::open(folder, kSource, 0, groups);
    return journal.ok() ? "no error" : journal.message();
  }
  std::string folder, path;
};

TEST_F(Journal, ReadsBackWhatWasWritten) {
  write(0, 3);
  write(3, 5); // another process goes on
  std::vector<Group> groups;
  ASSERT_TRUE(SampleJournal::open(folder, kSource, 2, groups).ok());
  ASSERT_EQ(groups.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i)
    expectSame(groups[i], groupOf(i + 2));
}

TEST_F(Journal, HasTheValuesOfTheBatchThatARunResumesIn) {
  write(0, 4);
  const ValueEstimates early{0, {1, 2}}, late{2, {0.1f, -0.0f, 1e-30f}};
  {
    std::vector<Group> groups;
    auto journal = SampleJournal::open(folder, kSource, 0, groups);
    ASSERT_TRUE(journal.ok()) << journal.message();
    ASSERT_TRUE(journal->append(early).ok());
    ASSERT_TRUE(journal->append(late).ok());
  }
  write(4, 5);
  std::vector<Group> groups;
  std::optional<ValueEstimates> values;
  ASSERT_TRUE(
      SampleJournal::open(folder, kSource, 2, groups, systemFiles(), &values)
          .ok());
  EXPECT_EQ(groups.size(), 3u);
  ASSERT_TRUE(values);
  EXPECT_EQ(values->tokens, late.tokens);
  EXPECT_TRUE(std::signbit(values->tokens[1]));
  values.reset();
  groups.clear();
  ASSERT_TRUE(
      SampleJournal::open(folder, kSource, 1, groups, systemFiles(), &values)
          .ok());
  EXPECT_FALSE(values);
  std::string damaged = text();
  damaged[damaged.find("\"values\": 0, \"tokens\": [1") + 24] = '3';
  replace(damaged);
  EXPECT_NE(errorOf().find("is not what was written"), std::string::npos)
      << errorOf();
}

TEST_F(Journal, WhereverACrashTornItWholeLinesRemain) {
  write(0, 2);
  const std::string whole = text();
  for (std::size_t size = 0; size <= whole.size(); size += 7) {
    replace(whole.substr(0, size));
    const auto lines = std::ranges::count(whole.substr(0, size), '\n');
    std::vector<Group> groups;
    auto journal = SampleJournal::open(folder, kSource, 0, groups);
    ASSERT_TRUE(journal.ok()) << size << ": " << journal.message();
    EXPECT_EQ(std::int64_t(groups.size()), std::max(lines - 1, 0L));
    ASSERT_TRUE(journal->append(groupOf(9)).ok());
    groups.clear();
    ASSERT_TRUE(SampleJournal::open(folder, kSource, 9, groups).ok());
    ASSERT_EQ(groups.size(), 1u);
    expectSame(groups[0], groupOf(9));
  }
}

TEST_F(Journal, AFlippedBitIsFound) {
  write(0, 2);
  const std::string whole = text();
  const std::size_t first = whole.find('\n') + 1;
  for (std::size_t i = first; i + 1 < whole.find('\n', first); ++i) {
    std::string damaged = whole;
    damaged[i] = char(damaged[i] ^ 1);
    if (damaged[i] == '\n')
      continue; // then it is a torn line and another
    replace(damaged);
    EXPECT_NE(errorOf(), "no error") << i;
  }
}

TEST_F(Journal, ALastLineWithoutItsMiddleIsRemoved) {
  write(0, 2);
  std::string torn = text();
  const std::size_t last = torn.rfind('\n', torn.size() - 2) + 1;
  torn.replace(last + 20, 8, std::string(8, '\0'));
  replace(torn);
  std::vector<Group> groups;
  ASSERT_TRUE(SampleJournal::open(folder, kSource, 0, groups).ok());
  EXPECT_EQ(groups.size(), 1u);
  EXPECT_EQ(text(), torn.substr(0, last));
}

TEST_F(Journal, IsOfItsPromptsAndItsSeed) {
  write(0, 1);
  std::vector<Group> groups;
  for (auto [other, what] :
       {std::pair(JournalSource{8, 0x1234}, "seed 7, not 8"),
        std::pair(JournalSource{7, 0x1235}, "other prompts"),
        std::pair(JournalSource{7, 0x1234, 3}, "rollout.epochs = 1, not 3"),
        std::pair(JournalSource{7, 0x1234, 1, 2},
                  "rollout.minibatches = 1, not 2")}) {
    auto journal = SampleJournal::open(folder, other, 0, groups);
    ASSERT_FALSE(journal.ok());
    EXPECT_EQ(journal.message(),
              fmt::format("'{}' is of {}; resume with what it was sampled "
                          "with, or choose another --out",
                          path, what));
  }
}

TEST_F(Journal, KnowsWhatGaveTheRewards) {
  JournalSource source = kSource;
  source.reward = "sh -c 'echo \"1\"'\n";
  std::vector<Group> groups;
  ASSERT_TRUE(SampleJournal::open(folder, source, 0, groups).ok());
  auto journal = SampleJournal::open(folder, kSource, 0, groups);
  ASSERT_TRUE(journal.ok()) << journal.message();
  EXPECT_EQ(journal->lastReward(), source.reward);
  // Another one, with a byte that is not UTF-8, is the last one from then on.
  const std::string other = "echo \xFF";
  ASSERT_TRUE(journal->append(groupOf(0)).ok());
  ASSERT_TRUE(journal->appendReward(other).ok());
  ASSERT_TRUE(journal->append(groupOf(1)).ok());
  auto later = SampleJournal::open(folder, source, 0, groups);
  ASSERT_TRUE(later.ok()) << later.message();
  EXPECT_EQ(groups.size(), 2u);
  EXPECT_TRUE(isSameReward(later->lastReward(), other));
  EXPECT_FALSE(isSameReward(later->lastReward(), source.reward));
}

TEST_F(Journal, OfBeforeTheRewardWasWrittenKnowsNone) {
  write(0, 1);
  const std::string whole = text();
  const std::size_t begin = whole.find(", \"reward\""),
                    end = whole.find(", \"check\"");
  const std::string line = whole.substr(0, begin);
  replace(fmt::format("{}, \"check\": \"{:016x}\"}}{}", line,
                      hash64(std::as_bytes(std::span(std::string_view(line)))),
                      whole.substr(whole.find('\n'))));
  ASSERT_LT(begin, end);
  std::vector<Group> groups;
  auto journal = SampleJournal::open(folder, kSource, 0, groups);
  ASSERT_TRUE(journal.ok()) << journal.message();
  EXPECT_EQ(journal->lastReward(), "");
  EXPECT_EQ(groups.size(), 1u);
}

TEST_F(Journal, BeginsWithItsFormat) {
  write(0, 1);
  std::string other = text();
  const std::size_t end = other.find(", \"check\"");
  other.replace(other.find("samples"), 7, "SAMPLES");
  const std::string begin = other.substr(0, end);
  replace(fmt::format("{}, \"check\": \"{:016x}\"}}\n", begin,
                      hash64(std::as_bytes(std::span(begin)))));
  std::vector<Group> groups;
  auto journal = SampleJournal::open(folder, kSource, 0, groups);
  ASSERT_FALSE(journal.ok());
  EXPECT_EQ(journal.message(), path + ":1: is not the first line of a journal "
                                      "of completions of version 1");
}

} // namespace
} // namespace tessera::rl
