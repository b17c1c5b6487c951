// Distributions of a teacher next to packed rows, on random documents.
#include "test/runtime/data/PackedShards.h"
#include "test/support/ScratchDirectory.h"

#include <cmath>
#include <cstring>
#include <functional>

using namespace tessera;
using namespace tessera::testing;

namespace {
/// Of token `i`: tokens i, i + 1, … modulo the vocabulary, with probabilities
/// 1/2, 1/4, … and the rest.
struct Distribution {
  explicit Distribution(std::size_t i, std::size_t top) {
    double rest = 1;
    for (std::size_t k = 0; k < top; ++k) {
      tokens.push_back(int32_t((i + k) % kVocab));
      logProbs.push_back(float(std::log(rest /= 2)));
    }
    logProbs.push_back(float(std::log(rest)));
  }
  std::vector<int32_t> tokens;
  std::vector<float> logProbs;
};

Status writeTeacher(const std::string &folder, const std::string &name,
                    const PackedHeader &of, const TeacherFacts &facts) {
  auto writer = TeacherWriter::create(folder, name, of, facts);
  if (!writer.ok())
    return writer.status();
  for (std::size_t i = 0; i < of.tokenCount; ++i) {
    const Distribution each(i, facts.top);
    TESSERA_RETURN_IF_ERROR(writer->add(each.tokens, each.logProbs));
  }
  return writer->finish();
}
} // namespace

// Fewer tokens than are stored: the others join the rest.
TEST(PackedDataset, TargetsHaveATeachersDistributions) {
  ScratchDirectory folder;
  const auto shards = randomShards(5, 2);
  write(folder.path, shards);
  constexpr uint32_t stored = 4, top = 2;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    auto data = PackedDataset::open(folder.path, kVocab, kSequence);
    ASSERT_TRUE(data.ok()) << data.message();
    EXPECT_FALSE(data->openTeacher({1, top, kVocab}).ok());
    const std::string name = fmt::format("s{}", i);
    auto shard = PackedShard::open(folder.path, name);
    ASSERT_TRUE(shard.ok());
    ASSERT_TRUE(writeTeacher(folder.path, name, shard->header(),
                             {1, stored, uint32_t(kVocab)})
                    .ok());
  }
  auto data = PackedDataset::open(folder.path, kVocab, kSequence);
  ASSERT_TRUE(data.ok()) << data.message();
  const auto errorOf = [&](const TeacherFacts &needs) {
    return data->openTeacher(needs).message();
  };
  EXPECT_NE(errorOf({2, top, kVocab}).find("at the temperature 1"),
            std::string::npos);
  EXPECT_NE(errorOf({1, 5, kVocab}).find("has the 4 most probable tokens"),
            std::string::npos);
  EXPECT_NE(errorOf({1, top, kVocab + 1}).find("of the model's vocabulary"),
            std::string::npos);
  ASSERT_EQ(errorOf({1, top, kVocab}), "");
  Inputs row(1);
  std::vector<int32_t> tokens(kSequence * top, 7);
  std::vector<float> logProbs(kSequence * (top + 1), 7);
  PackedRowSpans spans = row.spans();
  spans.teacherTokens = tokens;
  spans.teacherLogProbs = logProbs;
  ASSERT_TRUE(data->row(0, spans).ok());
  bool isAny = false;
  // Tokens of the first row are those of its positions.
  for (std::size_t at = 0; at < kSequence; ++at) {
    const Distribution next(at + 1, top);
    isAny |= row.lossMask[at] != 0;
    for (std::size_t k = 0; k < top; ++k)
      EXPECT_EQ(tokens[at * top + k],
                row.lossMask[at] ? next.tokens[k] : ignoredTarget);
    for (std::size_t k = 0; k <= top; ++k)
      EXPECT_FLOAT_EQ(logProbs[at * (top + 1) + k],
                      row.lossMask[at] ? next.logProbs[k] : 0.0f);
  }
  EXPECT_TRUE(isAny);
}

TEST(PackedDataset, RefusesLearnedTokensWithoutATeacher) {
  ScratchDirectory folder;
  write(folder.path, randomShards(5, 1));
  auto data = PackedDataset::open(folder.path, kVocab, kSequence);
  auto shard = PackedShard::open(folder.path, "s0");
  ASSERT_TRUE(data.ok() && shard.ok()) << data.message() << shard.message();
  const TeacherFacts facts{1, 2, uint32_t(kVocab)};
  auto writer =
      TeacherWriter::create(folder.path, "s0", shard->header(), facts);
  ASSERT_TRUE(writer.ok()) << writer.message();
  const uint64_t count = shard->header().tokenCount;
  ASSERT_TRUE(writer
                  ->add(std::vector<int32_t>(count * 2, kNoTeacherToken),
                        std::vector<float>(count * 3))
                  .ok());
  ASSERT_TRUE(writer->finish().ok());
  ASSERT_TRUE(data->openTeacher(facts).ok());
  Inputs row(1);
  std::vector<int32_t> tokens(kSequence * 2);
  std::vector<float> logProbs(kSequence * 3);
  PackedRowSpans spans = row.spans();
  spans.teacherTokens = tokens;
  spans.teacherLogProbs = logProbs;
  const std::string error = data->row(0, spans).message();
  EXPECT_NE(error.find("s0.teacher: row 0 has nothing for its token"),
            std::string::npos)
      << error;
}

TEST(PackedDataset, TeachersAppearWholeOrNotAtAll) {
  ScratchDirectory folder;
  write(folder.path, randomShards(5, 1));
  auto shard = PackedShard::open(folder.path, "s0");
  ASSERT_TRUE(shard.ok()) << shard.message();
  const std::string partial = folder.path + "/.tmp-s0.teacher";
  {
    auto writer = TeacherWriter::create(folder.path, "s0", shard->header(),
                                        {1, 2, uint32_t(kVocab)});
    ASSERT_TRUE(writer.ok()) << writer.message();
    EXPECT_TRUE(std::filesystem::exists(partial));
    EXPECT_FALSE(writer->finish().ok());
  }
  EXPECT_FALSE(std::filesystem::exists(partial));
  EXPECT_FALSE(std::filesystem::exists(folder.path + "/s0.teacher"));
}

TEST(PackedDataset, RefusesDamagedTeachers) {
  ScratchDirectory folder;
  write(folder.path, randomShards(6, 2));
  auto shard = PackedShard::open(folder.path, "s0");
  ASSERT_TRUE(shard.ok()) << shard.message();
  const std::string path = folder.path + "/s0.teacher";
  const auto errorOf = [&](const std::function<void(std::string &)> &damage,
                           bool isRead) {
    EXPECT_TRUE(writeTeacher(folder.path, "s0", shard->header(),
                             {1, 3, uint32_t(kVocab)})
                    .ok());
    std::string bytes = readAll(path);
    damage(bytes);
    writeAll(path, bytes);
    auto opened = TeacherShard::open(path, shard->header());
    if (!opened.ok())
      return opened.message();
    std::vector<int32_t> tokens(3);
    std::vector<float> logProbs(4);
    return (isRead ? opened->read(0, 1, 3, tokens, logProbs) : opened->verify())
        .message();
  };
  const auto expect = [&](const char *part, auto damage, bool isRead = false) {
    const std::string error = errorOf(damage, isRead);
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  EXPECT_EQ(errorOf([](std::string &) {}, false), "");
  expect("60 bytes are less than a header", [](auto &b) { b.resize(60); });
  expect("the header is not that", [](auto &b) { b[41] ^= 1; });
  expect("do not hold", [](auto &b) { b.pop_back(); });
  expect("do not match their hash", [](auto &b) { b[70] ^= 1; });
  // The first token's number and log-probability.
  expect("outside the teacher's vocabulary", [](auto &b) { b[67] = 1; }, true);
  expect("not a log-probability", [](auto &b) { b[64 + 15] = 1; }, true);
  // A record is three tokens and four numbers.
  const auto put = [](std::string &bytes, std::size_t at, auto value) {
    static_assert(sizeof(value) == 4);
    std::memcpy(bytes.data() + 64 + 4 * at, &value, sizeof(value));
  };
  const Distribution first(0, 3);
  expect(
      "has 2 tokens instead of 3", [&](auto &b) { put(b, 1, int32_t(-1)); },
      true);
  expect("has 0 twice", [&](auto &b) { put(b, 2, first.tokens[0]); }, true);
  expect(
      "more probable",
      [&](auto &b) {
        put(b, 3, first.logProbs[1]);
        put(b, 4, first.logProbs[0]);
      },
      true);
  expect("of 1.875 together", [&](auto &b) { put(b, 6, 0.0f); }, true);
  expect("of 0.875 together", [&](auto &b) { put(b, 6, kLeastLogProb); }, true);
  auto other = PackedShard::open(folder.path, "s1");
  ASSERT_TRUE(other.ok()) << other.message();
  ASSERT_TRUE(
      writeTeacher(folder.path, "s0", shard->header(), {1, 3, uint32_t(kVocab)})
          .ok());
  EXPECT_NE(TeacherShard::open(path, other->header())
                .message()
                .find("belongs to other tokens"),
            std::string::npos);
}
