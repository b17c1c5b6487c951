#include "runtime/data/TokenShard.h"
#include "runtime/data/FileOperations.h"
#include "runtime/data/TokenSplit.h"
#include "runtime/support/Hash.h"
#include "runtime/support/ProcessMemory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

using namespace tessera;

namespace {
class TokenShards : public testing::Test {
protected:
  void SetUp() override {
    folder = testing::TempDir() + "token-shards-" +
             testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string write(std::vector<uint32_t> tokens, uint64_t vocabSize,
                    const std::string &name = "a.tok") {
    Status status =
        writeTokenShard(folder, name, {tokens, /*documents=*/1, vocabSize, 77});
    EXPECT_TRUE(status.ok()) << status.message();
    return folder + "/" + name;
  }

  std::string folder;
};

std::string readAll(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string errorOf(std::string bytes) {
  return parseShardHeader(std::as_bytes(std::span(bytes)), "s").message();
}

/// Overwrites a field and makes the header's hash right again.
template <typename Field>
std::string patched(std::string bytes, size_t offset, Field value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  uint64_t hash = hash64(std::as_bytes(std::span(bytes).first(56)));
  std::memcpy(bytes.data() + 56, &hash, sizeof(hash));
  return bytes;
}
} // namespace

TEST_F(TokenShards, WhatWasReadDoesNotStayResident) {
  std::string path = write(std::vector<uint32_t>(12 << 20, 7), 100);
  auto shard = TokenShard::open(path);
  ASSERT_TRUE(shard.ok()) << shard.message();
  std::vector<int32_t> sample(1025);
  const auto before = readProcessMemory();
  for (uint64_t at = 0; at + sample.size() < shard->size(); at += 1024)
    ASSERT_TRUE(shard->read(at, sample).ok());
  const auto after = readProcessMemory();
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_LE(after->residentBytes, before->residentBytes + (6 << 20))
      << "of 24 MiB that were read";
}

TEST_F(TokenShards, HoldWhatWasWritten) {
  for (uint64_t vocabSize : {uint64_t{65536}, uint64_t{65537}, maxVocabSize}) {
    uint32_t top = static_cast<uint32_t>(vocabSize - 1);
    std::vector<uint32_t> tokens = {0, 1, top, 2, 65535};
    std::string path = write(tokens, vocabSize);
    auto shard = TokenShard::open(path);
    ASSERT_TRUE(shard.ok()) << shard.message();
    EXPECT_EQ(shard->header().tokenBytes, vocabSize == 65536 ? 2u : 4u);
    EXPECT_EQ(shard->header().tokenizerHash, 77u);
    EXPECT_EQ(shard->header().documentCount, 1u);
    EXPECT_EQ(shard->header().vocabSize, vocabSize);
    std::vector<int32_t> read(3);
    ASSERT_TRUE(shard->read(1, read).ok());
    EXPECT_EQ(read, (std::vector<int32_t>{1, static_cast<int32_t>(top), 2}));
    EXPECT_TRUE(shard->verify().ok());
    EXPECT_EQ(shard->read(3, read).message(),
              path + ": tokens 3 to 6 were asked for, but it holds 5");
    EXPECT_FALSE(shard->read(~uint64_t{0}, read).ok());
  }
}

TEST_F(TokenShards, MayBeEmpty) {
  EXPECT_EQ(writeTokenShard(folder, "e.tok", {{}, 1, 10, 1}).message(),
            folder + "/e.tok: 1 documents cannot end in 0 tokens");
  ASSERT_TRUE(writeTokenShard(folder, "e.tok", {{}, 0, 10, 1}).ok());
  auto empty = TokenShard::open(folder + "/e.tok");
  ASSERT_TRUE(empty.ok()) << empty.message();
  EXPECT_EQ(empty->size(), 0u);
  EXPECT_TRUE(empty->verify().ok());
}

TEST_F(TokenShards, RefuseTokensOutsideTheVocabulary) {
  std::vector<uint32_t> tokens = {1, 2, 10};
  EXPECT_EQ(writeTokenShard(folder, "x.tok", {tokens, 1, 10, 0}).message(),
            folder + "/x.tok: token 2 is 10, but the vocabulary has 10");
  EXPECT_FALSE(std::filesystem::exists(folder + "/x.tok"));
  EXPECT_FALSE(writeTokenShard(folder, "x.tok", {tokens, 1, 0, 0}).ok());
  EXPECT_FALSE(
      writeTokenShard(folder + "/none", "x.tok", {tokens, 1, 11, 0}).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "nothing is left behind";
}

TEST_F(TokenShards, EveryFlippedBitIsFound) {
  std::string path = write({5, 6, 7, 8}, 100);
  std::string good = readAll(path);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bad;
    auto shard = TokenShard::open(path);
    EXPECT_TRUE(!shard.ok() || !shard->verify().ok()) << "bit " << bit;
  }
}

TEST_F(TokenShards, EveryTruncationIsFound) {
  std::string good = readAll(write({5, 6, 7, 8}, 100));
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_NE(errorOf(good.substr(0, length)), "") << length;
  EXPECT_NE(errorOf(good + "x"), "");
  EXPECT_NE(errorOf(good + "xy"), "");
  EXPECT_EQ(errorOf(good), "");
}

TEST_F(TokenShards, HeadersAreRefusedByName) {
  std::string good = readAll(write({5, 6, 7, 8}, 100));
  EXPECT_EQ(errorOf("abc"),
            "s: 3 bytes are too few for a token shard's 64-byte header");
  EXPECT_EQ(errorOf(patched(good, 0, 'x')),
            "s: offset 0: not a token shard (its magic is \"TSRATOKS\"); make "
            "one with `tessera data tokenize`");
  EXPECT_EQ(errorOf(patched(good, 8, uint32_t{2})),
            "s: offset 8: token shard version 2 is not supported, this program "
            "reads version 1; write it again with `tessera data tokenize`");
  EXPECT_EQ(errorOf(patched(good, 12, uint32_t{0})),
            "s: offset 12: token width must be 2 bytes for a vocabulary of "
            "100, got 0; write it again with `tessera data tokenize`");
  EXPECT_EQ(errorOf(patched(good, 32, uint64_t{0})),
            "s: offset 32: vocabulary size must be 1 to 2147483648, got 0; "
            "write it again with `tessera data tokenize`");
  EXPECT_EQ(errorOf(patched(good, 24, uint64_t{5})),
            "s: offset 24: 5 documents cannot end in 4 tokens; write it again "
            "with `tessera data tokenize`");
  // A count whose size in bytes wraps around to the true one.
  EXPECT_EQ(errorOf(patched(good, 16, (uint64_t{1} << 63) + 4)),
            "s: the header promises 9223372036854775812 tokens of 2 bytes, but "
            "8 bytes follow it; the file is truncated or damaged, write it "
            "again with `tessera data tokenize`");
}

TEST_F(TokenShards, TokensOutOfRangeAreNamedWhenRead) {
  std::string path = write({5, 6, 7, 8}, 100);
  std::string bad = patched(readAll(path), 32, uint64_t{7}); // vocabulary of 7
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bad;
  auto shard = TokenShard::open(path);
  ASSERT_TRUE(shard.ok()) << shard.message();
  std::vector<int32_t> read(4);
  EXPECT_EQ(shard->read(0, read).message(),
            path + ": token 2 is 7, but its vocabulary has 7; the file is "
                   "damaged, write it again with `tessera data tokenize`");
  EXPECT_FALSE(shard->verify().ok());
}

TEST_F(TokenShards, OnlyRegularFilesAreOpened) {
  EXPECT_FALSE(TokenShard::open(folder).ok());
  EXPECT_FALSE(TokenShard::open(folder + "/absent").ok());
  EXPECT_FALSE(TokenShard::open("/dev/zero").ok());
}

namespace {
SplitIndex sampleIndex() {
  SplitIndex index;
  index.vocabSize = 100;
  index.tokenizerHash = 77;
  index.tokens = 7;
  index.documents = 2;
  index.textBytes = 30;
  index.separator = 3;
  index.unigramEntropy = 1.25;
  index.shards = {{"a.tok", 4, 1}, {"b.tok", 3, 1}};
  return index;
}
} // namespace

TEST_F(TokenShards, SplitsOpenInOrder) {
  write({5, 6, 7, 8}, 100, "a.tok");
  write({9, 10, 11}, 100, "b.tok");
  ASSERT_TRUE(writeSplitIndex(sampleIndex(), folder).ok());
  auto split = TokenSplit::open(folder);
  ASSERT_TRUE(split.ok()) << split.message();
  ASSERT_EQ(split->shards.size(), 2u);
  EXPECT_EQ(split->shards[1].size(), 3u);
  EXPECT_EQ(split->index.tokenizerHash, 77u);
  EXPECT_EQ(split->index.unigramEntropy, 1.25);
  EXPECT_EQ(split->index.separator, 3u);
}

TEST_F(TokenShards, SplitsMustAgreeWithTheirShards) {
  auto refused = [&](SplitIndex index, const char *words) {
    ASSERT_TRUE(writeSplitIndex(index, folder).ok());
    auto split = TokenSplit::open(folder);
    ASSERT_FALSE(split.ok());
    EXPECT_NE(split.message().find(words), std::string::npos)
        << split.message();
  };
  EXPECT_NE(TokenSplit::open(folder).message().find(
                "a folder of tokens is made by `tessera data tokenize`"),
            std::string::npos);
  write({5, 6, 7, 8}, 100, "a.tok");
  write({9, 10, 11}, 101, "b.tok");
  refused(sampleIndex(), "vocabulary 101");
  write({9, 10}, 100, "b.tok");
  refused(sampleIndex(), "2 tokens, 1 documents");
  std::filesystem::remove(folder + "/b.tok");
  refused(sampleIndex(), "b.tok: cannot open");
  SplitIndex index = sampleIndex();
  index.tokens = 8;
  refused(index, "the shards add up to 7 tokens and 2 documents, but the split "
                 "says 8 and 2");
}

TEST_F(TokenShards, IndexesAreRefusedByKey) {
  ASSERT_TRUE(writeSplitIndex(sampleIndex(), folder).ok());
  std::string good = readAll(folder + "/index.json");
  ASSERT_TRUE(parseSplitIndex(good, "i").ok());
  auto errorWith = [&](std::string_view from, std::string_view to) {
    std::string bad = good;
    size_t at = bad.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    bad.replace(at, from.size(), to);
    return parseSplitIndex(bad, "i").message();
  };
  std::string advice = "; write the folder again with `tessera data tokenize`";
  EXPECT_EQ(errorWith("tessera-tokens", "other"),
            "i: \"format\" must be \"tessera-tokens\"" + advice);
  EXPECT_EQ(errorWith("\"version\": 1", "\"version\": 2"),
            "i: \"version\" must be 1, the version this program reads" +
                advice);
  EXPECT_EQ(errorWith("\"vocab_size\": 100", "\"vocab_size\": 0"),
            "i: \"vocab_size\" must be 1 to 2147483648" + advice);
  EXPECT_EQ(errorWith("\"separator\": 3", "\"separator\": 100"),
            "i: \"separator\" must be below vocab_size" + advice);
  EXPECT_EQ(errorWith("\"tokens\": 7", "\"tokens\": -7"),
            "i: \"tokens\" must be an integer that is not negative" + advice);
  EXPECT_EQ(errorWith("000000000000004d", "4d"),
            "i: \"tokenizer_hash\" must be 16 hexadecimal digits" + advice);
  EXPECT_EQ(errorWith("1.25", "-1"),
            "i: \"unigram_entropy\" must not be negative" + advice);
  for (const char *name : {"../a.tok", "/etc/passwd", "", ".tok", "x/y"})
    EXPECT_EQ(errorWith("a.tok", name),
              "i: shard 0: \"file\" must be a plain file name within the "
              "folder" +
                  advice);
  EXPECT_EQ(errorWith("\"tokens\": 4", "\"tokens\": 18446744073709551613"),
            "i: shard 0: \"tokens\" is too large" + advice);
  EXPECT_EQ(parseSplitIndex("[]", "i").message(), "i: must be a JSON object");
  EXPECT_FALSE(parseSplitIndex("{", "i").ok());
}
