// Packed rows on disk and as model inputs, on random documents: each token of
// each document appears exactly once, and a row knows its documents.
#include "test/runtime/data/PackedShards.h"
#include "test/support/ScratchDirectory.h"

#include <cmath>
#include <functional>
#include <map>

using namespace tessera;
using namespace tessera::testing;

namespace {
/// The obvious way: walks the written contents once, and compares.
void expectRows(const PackedDataset &data,
                const std::vector<PackedShardContents> &shards) {
  uint64_t number = 0;
  for (const PackedShardContents &shard : shards) {
    std::size_t token = 0, document = 0;
    for (uint32_t count : shard.rowDocuments) {
      Inputs row(1);
      std::vector<PlacedDocument> placed;
      ASSERT_TRUE(data.row(number, row.spans()).ok());
      ASSERT_TRUE(data.documents(number, placed).ok());
      ASSERT_EQ(placed.size(), count);
      ++number;
      std::size_t at = 0;
      for (uint32_t d = 0; d < count; ++d, ++document) {
        const PackedDocument &wanted = shard.documents[document];
        EXPECT_EQ(placed[d].begin, at);
        EXPECT_EQ(placed[d].document.length, wanted.length);
        EXPECT_EQ(placed[d].document.kind, wanted.kind);
        EXPECT_EQ(placed[d].document.source, wanted.source);
        EXPECT_EQ(placed[d].document.line, wanted.line);
        for (uint32_t i = 0; i < wanted.length; ++i, ++at, ++token) {
          EXPECT_EQ(row.tokens[at], int32_t(shard.tokens[token]));
          EXPECT_EQ(row.segments[at], int32_t(d));
          EXPECT_EQ(row.positions[at], int32_t(i));
          const bool last = i + 1 == wanted.length;
          const bool learned = !last && shard.supervised[token + 1];
          EXPECT_EQ(row.lossMask[at], learned);
          EXPECT_EQ(row.targets[at],
                    learned ? int32_t(shard.tokens[token + 1]) : -100);
        }
      }
      for (int32_t i = 0; at < kSequence; ++at, ++i) {
        EXPECT_EQ(row.tokens[at], kPadding);
        EXPECT_EQ(row.segments[at], ignoredTarget);
        EXPECT_EQ(row.positions[at], i);
        EXPECT_EQ(row.lossMask[at], 0);
        EXPECT_EQ(row.targets[at], -100);
      }
    }
    EXPECT_EQ(token, shard.tokens.size());
    EXPECT_EQ(document, shard.documents.size());
  }
  EXPECT_EQ(number, data.rows());
}

std::string headerError(std::string bytes) {
  return parsePackedHeader(std::as_bytes(std::span(bytes)), "r").message();
}
} // namespace

TEST(PackedDataset, RowsAreTheDocumentsThatWereWritten) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    ScratchDirectory folder;
    const auto shards = randomShards(seed, 1 + int(seed % 3));
    write(folder.path, shards);
    auto data = PackedDataset::open(folder.path, kVocab, kSequence);
    ASSERT_TRUE(data.ok()) << data.message();
    expectRows(*data, shards);
    for (std::size_t i = 0; i < shards.size(); ++i) {
      auto shard = PackedShard::open(folder.path, fmt::format("s{}", i));
      ASSERT_TRUE(shard.ok());
      EXPECT_TRUE(shard->verify().ok()) << shard->verify().message();
    }
  }
}

// Numbers that say which token they are of.
TEST(PackedDataset, TargetsHaveTheScoresOfAReferenceModel) {
  ScratchDirectory folder;
  const auto shards = randomShards(4, 3);
  write(folder.path, shards);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    auto data = PackedDataset::open(folder.path, kVocab, kSequence);
    ASSERT_TRUE(data.ok()) << data.message();
    EXPECT_FALSE(data->openReference().ok()) << "some shards have none";
    const std::string name = fmt::format("s{}", i);
    auto shard = PackedShard::open(folder.path, name);
    ASSERT_TRUE(shard.ok());
    std::vector<float> scores;
    for (std::size_t token = 0; token < shards[i].tokens.size(); ++token)
      scores.push_back(-float(1000 * i + token));
    Status written =
        writeReferenceShard(folder.path, name, shard->header(), scores);
    ASSERT_TRUE(written.ok()) << written.message();
  }
  auto data = PackedDataset::open(folder.path, kVocab, kSequence);
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_NE(data->openReference(/*hasWholePrompts=*/true)
                .message()
                .find("s0.ref: the reference model has read causal prompts, "
                      "and this program has bidirectional ones; run `tessera "
                      "data reference` again with --set "
                      "attention.prompts=bidirectional"),
            std::string::npos);
  ASSERT_TRUE(data->openReference().ok());
  uint64_t number = 0, most = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    std::size_t token = 0, document = 0;
    for (uint32_t count : shards[i].rowDocuments) {
      most = std::max<uint64_t>(most, count);
      Inputs row(1);
      std::vector<float> reference(kSequence, 7);
      PackedRowSpans spans = row.spans();
      spans.reference = reference;
      ASSERT_TRUE(data->row(number++, spans).ok());
      std::size_t at = 0;
      for (uint32_t d = 0; d < count; ++d)
        for (uint32_t left = shards[i].documents[document++].length; left > 0;
             --left, ++at, ++token)
          EXPECT_EQ(reference[at],
                    row.lossMask[at] ? -float(1000 * i + token + 1) : 0.0f);
      for (; at < kSequence; ++at)
        EXPECT_EQ(reference[at], 0.0f);
    }
  }
  EXPECT_EQ(*data->mostDocuments(), most);
}

TEST(PackedDataset, RefusesRowsThatAreNotOfPairs) {
  using enum DocumentKind;
  const auto errorOf = [](std::vector<DocumentKind> kinds) {
    ScratchDirectory folder;
    PackedShardContents shard;
    shard.sequence = kSequence;
    shard.vocabSize = kVocab;
    for (DocumentKind kind : kinds)
      shard.documents.push_back({1, kind, 0, 1});
    shard.tokens.assign(kinds.size(), 3);
    shard.supervised.assign(kinds.size(), 1);
    shard.rowDocuments = {uint32_t(kinds.size())};
    EXPECT_TRUE(writePackedShard(folder.path, "s", shard).ok());
    PackedIndex index;
    index.objective = PackedObjective::Preference;
    index.sequence = kSequence;
    index.vocabSize = kVocab;
    index.rows = 1;
    index.documents = index.tokens = kinds.size();
    index.shards = {{"s", 1, kinds.size(), kinds.size()}};
    EXPECT_TRUE(writePackedIndex(index, folder.path).ok());
    auto data = PackedDataset::open(folder.path, kVocab, kSequence);
    EXPECT_TRUE(data.ok()) << data.message();
    return data->row(0, Inputs(1).spans()).message();
  };
  EXPECT_EQ(errorOf({Chosen, Rejected, Chosen, Rejected}), "");
  for (const auto &kinds : {std::vector{Chosen}, std::vector{Rejected, Chosen},
                            std::vector{Chosen, Rejected, Chosen}})
    EXPECT_EQ(errorOf(kinds),
              "row 0 of 's' is not of pairs, each a chosen and then a rejected "
              "answer; write the folder again with `tessera data chat`");
}

TEST(PackedDataset, RefusesDamagedScores) {
  ScratchDirectory folder;
  const auto shards = randomShards(5, 1);
  write(folder.path, shards);
  auto shard = PackedShard::open(folder.path, "s0");
  ASSERT_TRUE(shard.ok());
  const std::string path = folder.path + "/s0.ref";
  const auto errorOf = [&](std::vector<float> scores,
                           const std::function<void(std::string &)> &damage) {
    EXPECT_TRUE(
        writeReferenceShard(folder.path, "s0", shard->header(), scores).ok());
    std::string bytes = readAll(path);
    damage(bytes);
    writeAll(path, bytes);
    auto opened = ReferenceShard::open(path, shard->header());
    if (!opened.ok())
      return opened.message();
    if (Status verified = opened->verify(); !verified.ok())
      return verified.message();
    std::vector<float> read(scores.size());
    return opened->read(0, read).message();
  };
  std::vector<float> scores(shards[0].tokens.size(), -1);
  const auto nothing = [](std::string &) {};
  EXPECT_EQ(errorOf(scores, nothing), "");
  EXPECT_NE(errorOf(scores, [](std::string &bytes) { bytes.resize(60); })
                .find("60 bytes are less than a header"),
            std::string::npos);
  EXPECT_NE(errorOf(scores, [](std::string &bytes) { bytes[17] ^= 1; })
                .find("the header is not that of log-probabilities"),
            std::string::npos);
  EXPECT_NE(errorOf(scores, [](std::string &bytes) { bytes.pop_back(); })
                .find("do not hold"),
            std::string::npos);
  EXPECT_NE(errorOf(scores, [](std::string &bytes) { bytes[70] ^= 1; })
                .find("do not match their hash"),
            std::string::npos);
  for (float wrong : {1.0f, NAN, -INFINITY}) {
    scores[0] = wrong;
    EXPECT_NE(errorOf(scores, nothing).find("which is not a log-probability"),
              std::string::npos);
  }
}

TEST(PackedDataset, BatchesAreSamplesOfOneCursor) {
  ScratchDirectory folder;
  write(folder.path, randomShards(3, 3));
  auto data = PackedDataset::open(folder.path, kVocab, kSequence);
  ASSERT_TRUE(data.ok());
  const uint64_t rows = data->rows();
  // An epoch has every row once, and the next another order.
  std::map<uint64_t, int> seen;
  bool differs = false;
  for (uint64_t k = 0; k < rows; ++k) {
    ++seen[data->rowOf(7, k)];
    differs |= data->rowOf(7, k) != data->rowOf(7, rows + k);
  }
  EXPECT_EQ(seen.size(), rows);
  EXPECT_TRUE(differs);
  // One rank of four rows, or two of two each: the same four samples.
  const std::vector<uint64_t> all = {0, 1, 2, 3}, even = {0, 2}, odd = {1, 3};
  Inputs one(4), two(4);
  ASSERT_TRUE(data->batch(7, 5, all, one.spans()).ok());
  ASSERT_TRUE(data->batch(7, 5, even, two.spans()).ok());
  EXPECT_EQ(two.tokens[kSequence], -7) << "a row of another rank is untouched";
  ASSERT_TRUE(data->batch(7, 5, odd, two.spans()).ok());
  EXPECT_EQ(one, two);
  Inputs row(1);
  ASSERT_TRUE(data->row(data->rowOf(7, 5 + 2), row.spans()).ok());
  EXPECT_TRUE(std::equal(row.targets.begin(), row.targets.end(),
                         one.targets.begin() + 2 * kSequence));
  // Spans that are not wanted are left out.
  ASSERT_TRUE(data->row(0, {.tokens = row.tokens}).ok());
}

TEST(PackedDataset, EvaluationIsFixedAndMasked) {
  ScratchDirectory folder;
  write(folder.path, randomShards(5, 1));
  auto data = PackedDataset::open(folder.path, kVocab, kSequence);
  ASSERT_TRUE(data.ok());
  const uint64_t rows = data->rows();
  const std::vector<uint64_t> own = {0, 1};
  std::vector<int> learned;
  for (uint64_t batch = 0; batch <= rows / 2; ++batch) {
    Inputs inputs(2);
    ASSERT_TRUE(
        data->evalBatch(batch, rows / 2 + 1, 2, own, inputs.spans()).ok());
    for (uint64_t i = 0; i < 2; ++i) {
      Inputs row(1);
      const uint64_t number = batch * 2 + i;
      ASSERT_TRUE(data->row(number < rows ? number : 0, row.spans()).ok());
      PackedRowSpans part = inputs.spans().row(i, kSequence);
      EXPECT_TRUE(std::equal(part.tokens.begin(), part.tokens.end(),
                             row.tokens.begin()));
      for (int32_t target : part.targets)
        if (number >= rows)
          EXPECT_EQ(target, -100);
      for (int32_t mask : part.lossMask)
        if (number >= rows)
          EXPECT_EQ(mask, 0);
    }
  }
}

TEST(PackedDataset, RefusesWhatDoesNotFit) {
  ScratchDirectory folder;
  write(folder.path, randomShards(1, 2));
  auto error = [&](int64_t vocab, int64_t sequence) {
    return PackedDataset::open(folder.path, vocab, sequence).message();
  };
  EXPECT_EQ(error(kVocab - 1, kSequence),
            "'" + folder.path +
                "' was tokenized for a vocabulary of 97 tokens, the model has "
                "96; use the model's tokenizer or compile the model with "
                "vocab_size 97");
  EXPECT_EQ(error(kVocab, 32),
            "'" + folder.path +
                "' has rows of 24 tokens, the model has sequences of 32; pack "
                "it again with --sequence 32 or compile the model with "
                "batch.sequence 24");
  EXPECT_TRUE(isPackedFolder(folder.path));
  // The tokens of another shard.
  std::filesystem::copy_file(folder / "s1.tok", folder / "s0.tok",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_NE(error(kVocab, kSequence).find("belongs to other tokens"),
            std::string::npos);
  EXPECT_FALSE(isPackedFolder(folder / "nothing"));
}

TEST(PackedShard, DamageIsFound) {
  ScratchDirectory folder;
  write(folder.path, randomShards(9, 1));
  const std::string path = folder / "s0.rows", whole = readAll(path);
  for (std::size_t size : {0, 63, 64, int(whole.size()) - 1})
    EXPECT_FALSE(headerError(whole.substr(0, size)).empty());
  EXPECT_FALSE(headerError(whole + "x").empty());
  EXPECT_TRUE(headerError(whole).empty());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = char(bytes[i] ^ 0x10);
    writeAll(path, bytes);
    auto shard = PackedShard::open(folder.path, "s0");
    if (i < 64) {
      EXPECT_FALSE(shard.ok()) << i;
      continue;
    }
    ASSERT_TRUE(shard.ok()) << shard.message();
    EXPECT_FALSE(shard->verify().ok()) << i;
    // And reading one row without the hash stays within the row.
    PackedRowContents row;
    for (uint64_t r = 0; r < shard->rows(); ++r) {
      if (!shard->read(r, row).ok())
        continue;
      EXPECT_LE(row.tokens.size(), kSequence);
      EXPECT_EQ(row.tokens.size(), row.supervised.size());
    }
    EXPECT_FALSE(shard->read(shard->rows(), row).ok());
  }
}

TEST(PackedIndex, SaysWhatIsWrong) {
  ScratchDirectory folder;
  write(folder.path, randomShards(2, 2));
  const std::string whole = readAll(folder / "index.json");
  auto edited = [&](std::string_view from, std::string_view to) {
    std::string text = whole;
    text.replace(text.find(from), from.size(), to);
    return parsePackedIndex(text, "i").message();
  };
  const std::string advice =
      "; write the folder again with `tessera data chat`";
  EXPECT_EQ(edited("tessera-packed", "tessera-tokens"),
            "i: \"format\" must be \"tessera-packed\"" + advice);
  EXPECT_EQ(edited("\"sft\"", "\"sfd\""),
            "i: \"objective\" must be sft, preference or label" + advice);
  EXPECT_EQ(edited("\"s1\"", "\"../s1\""),
            "i: shard 1: \"file\" must be a plain file name within the folder" +
                advice);
  EXPECT_EQ(edited("\"padding_token\": 96", "\"padding_token\": 97"),
            "i: \"padding_token\" must be below vocab_size" + advice);
  EXPECT_NE(edited("\"rows\": ", "\"rows\": 1").find("add up"),
            std::string::npos);
  EXPECT_TRUE(parsePackedIndex(whole, "i").ok());
}
