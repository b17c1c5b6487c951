#include "runtime/data/tokenizer/CorpusTokens.h"
#include "TestTokenizers.h"
#include "runtime/data/tokenizer/Documents.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

using namespace tessera;
using namespace tessera::tokenizer;
namespace fs = std::filesystem;

namespace {
class Corpus : public testing::Test {
protected:
  void SetUp() override {
    folder = testing::TempDir() + "corpus-" +
             testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder);
    fs::create_directories(folder + "/train/deeper");
    write("tokenizer.json", tokenizerJson(test::train(330)));
    write("train/b.txt", "the second document");
    write("train/a.txt", "the first 文件 <|endoftext|> document\n");
    write("train/deeper/c.jsonl", "{\"text\": \"third\\u0000\", \"id\": 1}\n\n"
                                  "{\"text\": \"\"}\r\n{\"text\": \"4\"}");
    write("train/ignored.dat", "not this");
    write("eval.txt", "the the the they");
    options.tokenizerPath = path("tokenizer.json");
    options.trainInputs = {path("train")};
    options.evalInputs = {path("eval.txt")};
    options.out = path("tokens");
  }
  void TearDown() override { fs::remove_all(folder); }

  std::string path(const std::string &name) { return folder + "/" + name; }
  void write(const std::string &name, std::string_view text) {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  std::vector<uint32_t> readSplit(const std::string &name) {
    auto split = TokenSplit::open(path(name));
    EXPECT_TRUE(split.ok()) << split.message();
    std::vector<uint32_t> all;
    for (const TokenShard &shard : split->shards) {
      EXPECT_TRUE(shard.verify().ok());
      std::vector<int32_t> tokens(shard.size());
      EXPECT_TRUE(shard.read(0, tokens).ok());
      all.insert(all.end(), tokens.begin(), tokens.end());
    }
    return all;
  }

  std::string folder;
  CorpusOptions options;
};

const std::vector<std::string> trainDocuments = {
    "the first 文件 <|endoftext|> document\n", "the second document",
    std::string("third\0", 6), "4"};
} // namespace

TEST_F(Corpus, DocumentsComeInOrder) {
  std::vector<std::string> documents;
  Status status = forEachDocument({path("train")}, [&](std::string document) {
    documents.push_back(std::move(document));
    return Status::success();
  });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(documents, trainDocuments);
}

TEST_F(Corpus, BadDocumentsAreNamed) {
  auto errorOf = [&](const std::string &name) {
    return forEachDocument({path(name)},
                           [](std::string) { return Status::success(); })
        .message();
  };
  write("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n");
  EXPECT_EQ(errorOf("bad.jsonl"),
            path("bad.jsonl") + ":2: must be an object with a string \"text\"");
  write("worse.jsonl", "{\"text\": \"a\n");
  EXPECT_NE(errorOf("worse.jsonl").find("worse.jsonl:1: not valid JSON"),
            std::string::npos);
  fs::create_directories(path("empty"));
  EXPECT_EQ(errorOf("empty"), path("empty") + ": holds no .txt or .jsonl file");
  write("void.txt", "");
  EXPECT_EQ(errorOf("void.txt"),
            path("void.txt") + ": no document with any text in it");
  EXPECT_NE(errorOf("absent").find("cannot open"), std::string::npos);
}

TEST_F(Corpus, ShardsHoldTheDocumentsAndTheirEnds) {
  auto result = tokenizeCorpus(options);
  ASSERT_TRUE(result.ok()) << result.message();
  Tokenizer tokenizer = *Tokenizer::load(path("tokens/tokenizer.json"));
  EXPECT_EQ(result->train.tokenizerHash, tokenizer.hash());
  EXPECT_EQ(result->train.vocabSize, tokenizer.vocabSize());
  EXPECT_EQ(result->train.documents, 4u);

  Encoder encoder(tokenizer);
  std::vector<uint32_t> want;
  size_t bytes = 0;
  for (const std::string &document : trainDocuments) {
    encoder.encode(document, SpecialText::Plain, want);
    want.push_back(0);
    bytes += document.size();
  }
  EXPECT_EQ(readSplit("tokens/train"), want);
  EXPECT_EQ(result->train.textBytes, bytes);
  EXPECT_EQ(result->train.tokens, want.size());
  EXPECT_EQ(std::count(want.begin(), want.end(), 0u), 4);
}

TEST_F(Corpus, ShardSizeAndThreadsChangeNothing) {
  ASSERT_TRUE(tokenizeCorpus(options).ok());
  std::vector<uint32_t> want = readSplit("tokens/train");
  options.replace = true;
  options.threads = 3;
  for (uint64_t size : {1, 7, 1000}) {
    options.shardTokens = size;
    auto result = tokenizeCorpus(options);
    ASSERT_TRUE(result.ok()) << result.message();
    EXPECT_EQ(result->train.shards.size(), (want.size() + size - 1) / size);
    EXPECT_EQ(readSplit("tokens/train"), want);
    uint64_t documents = 0;
    for (const SplitIndex::Shard &shard : result->train.shards)
      documents += shard.documents;
    EXPECT_EQ(documents, 4u);
  }
  // Nothing of the run with a shard a token is left.
  EXPECT_FALSE(fs::exists(path("tokens/train/shard-00001.tok")));
}

TEST_F(Corpus, EntropyIsThatOfTheFrequencies) {
  std::vector<uint64_t> even = {5, 5, 0, 5, 5}, one = {0, 9}, none = {0};
  EXPECT_NEAR(unigramEntropy(even), std::log(4.0), 1e-12);
  EXPECT_EQ(unigramEntropy(one), 0);
  EXPECT_EQ(unigramEntropy(none), 0);
  auto result = tokenizeCorpus(options);
  ASSERT_TRUE(result.ok());
  std::vector<uint64_t> counts(result->eval->vocabSize);
  std::vector<uint32_t> tokens = readSplit("tokens/eval");
  for (uint32_t token : tokens)
    ++counts[token];
  double entropy = 0;
  for (uint64_t count : counts)
    if (count > 0) {
      double p = double(count) / double(tokens.size());
      entropy -= p * std::log(p);
    }
  EXPECT_NEAR(result->eval->unigramEntropy, entropy, 1e-12);
  EXPECT_GT(entropy, 0.5);
}

TEST_F(Corpus, TokensAreReplacedOnlyWhenAsked) {
  ASSERT_TRUE(tokenizeCorpus(options).ok());
  EXPECT_EQ(tokenizeCorpus(options).message(),
            path("tokens/train") + ": holds tokens already; name another "
                                   "folder, or replace them with --force");
  options.replace = true;
  options.evalInputs.clear();
  ASSERT_TRUE(tokenizeCorpus(options).ok());
  EXPECT_FALSE(fs::exists(path("tokens/eval/index.json")))
      << "an eval split of other tokens";
  // A misspelt name costs nothing.
  options.trainInputs.push_back(path("absent"));
  EXPECT_EQ(tokenizeCorpus(options).message(),
            path("absent") + ": cannot open: No such file or directory");
  EXPECT_TRUE(TokenSplit::open(path("tokens/train")).ok());
  // A run that fails later leaves nothing that looks whole.
  write("broken.jsonl", "no object");
  options.trainInputs = {path("broken.jsonl")};
  EXPECT_FALSE(tokenizeCorpus(options).ok());
  EXPECT_FALSE(TokenSplit::open(path("tokens/train")).ok());
}

TEST_F(Corpus, SeparatorsMustBeSpecialTokens) {
  nlohmann::json fields = test::tokenizerFields();
  uint32_t next = static_cast<uint32_t>(fields["model"]["vocab"].size());
  fields["added_tokens"] = {test::addedToken(next, "<eos>"),
                            test::addedToken(next + 1, "<plain>")};
  fields["added_tokens"][1]["special"] = false;
  write("tokenizer.json", fields.dump());
  EXPECT_EQ(tokenizeCorpus(options).message(),
            path("tokenizer.json") +
                ": has neither <|endoftext|> nor <|end_of_text|>; say with "
                "--separator which token ends a document");
  options.separator = "<none>";
  EXPECT_EQ(tokenizeCorpus(options).message(),
            path("tokenizer.json") +
                ": has no added token \"<none>\" to separate documents");
  options.separator = "<plain>";
  EXPECT_NE(tokenizeCorpus(options).message().find("is not a special token"),
            std::string::npos);
  options.separator = "<eos>";
  auto result = tokenizeCorpus(options);
  ASSERT_TRUE(result.ok()) << result.message();
  EXPECT_EQ(result->train.separator, next);
}
