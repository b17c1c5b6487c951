// tessera data chat: from files to a folder.
#include "runtime/data/chat/ChatCorpus.h"
#include "ChatFixture.h"
#include "runtime/data/PackedDataset.h"
#include "test/support/ScratchDirectory.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

using namespace tessera;
using namespace tessera::chat;
using namespace tessera::chat::test;
using tessera::testing::ScratchDirectory;

namespace {
void writeFile(const std::string &path, const std::string &text) {
  std::ofstream(path, std::ios::binary) << text;
}

class ChatCorpus : public ::testing::Test {
protected:
  ChatCorpus() {
    std::filesystem::create_directory(scratch / "model");
    writeFile(scratch / "model/tokenizer.json", chatTokenizerFields().dump());
    writeFile(scratch / "model/chat_template.jinja", chatml);
    writeFile(scratch / "model/tokenizer_config.json",
              R"({"eos_token": "<|im_end|>"})");
    options.tokenizer = scratch / "model";
    options.out = scratch / "sft";
    options.sequence = 64;
    options.encoding.rendering.now = 1;
  }

  static std::string line(const std::string &question,
                          const std::string &answer) {
    using Json = nlohmann::json;
    return Json{{"messages",
                 {Json{{"role", "user"}, {"content", question}},
                  Json{{"role", "assistant"}, {"content", answer}}}}}
               .dump() +
           "\n";
  }
  /// A file of `count` conversations that name their lines.
  void writeLines(const std::string &name, int count) {
    std::string text;
    for (int i = 1; i <= count; ++i)
      text += line(std::string(size_t(i % 17), 'q') + std::to_string(i),
                   std::string(size_t(i % 5), 'a') + name);
    writeFile(scratch / name, text);
    options.inputs.push_back({scratch / name, 1});
  }
  std::string error() {
    auto index = packChats(options);
    if (index.ok())
      return "packed";
    EXPECT_EQ(entries(), before) << "something is left";
    std::string message = index.message();
    for (size_t at = 0; (at = message.find(scratch.path)) != message.npos;)
      message.replace(at, scratch.path.size(), "T");
    return message;
  }
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator(scratch.path))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  void setInput(const std::string &text) {
    writeFile(scratch / "a.jsonl", text);
    options.inputs = {{scratch / "a.jsonl", 1}};
    before = entries();
  }

  ScratchDirectory scratch;
  ChatCorpusOptions options;
  std::vector<std::string> before;
};

/// Documents of each line of each source.
std::map<std::pair<int, uint64_t>, int> counts(const PackedDataset &data) {
  std::map<std::pair<int, uint64_t>, int> found;
  std::vector<PlacedDocument> documents;
  for (uint64_t row = 0; row < data.rows(); ++row) {
    EXPECT_TRUE(data.documents(row, documents).ok());
    for (const PlacedDocument &each : documents)
      ++found[{each.document.source, each.document.line}];
  }
  return found;
}

std::string readAll(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
} // namespace

TEST_F(ChatCorpus, EveryConversationIsInOneRowWithItsTokens) {
  writeLines("a", 3000);
  options.threads = 2;
  options.sequence = 256;
  options.packing.window = 4096;
  options.packing.shardTokens = 10'000;
  auto index = packChats(options);
  ASSERT_TRUE(index.ok()) << index.message();
  EXPECT_EQ(index->documents, 3000u);
  EXPECT_EQ(index->turns, 3000u);
  EXPECT_EQ(index->unendedTurns, 0u);
  EXPECT_GT(index->shards.size(), 2u);
  EXPECT_GT(index->efficiency(), 0.95);

  auto data = PackedDataset::open(options.out, index->vocabSize, 256);
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(counts(*data).size(), 3000u);
  // The documents are what an encoder alone makes of the lines.
  const ChatFormat format = chatFormat();
  ChatEncoder encoder(format, options.encoding);
  std::vector<std::string> lines;
  std::ifstream file(scratch / "a");
  for (std::string text; std::getline(file, text);)
    lines.push_back(text);
  std::vector<PlacedDocument> documents;
  std::vector<int32_t> tokens(256), mask(256);
  uint64_t supervised = 0;
  for (uint64_t row = 0; row < data->rows(); ++row) {
    ASSERT_TRUE(data->documents(row, documents).ok());
    ASSERT_TRUE(data->row(row, {.tokens = tokens, .lossMask = mask}).ok());
    for (const PlacedDocument &each : documents) {
      auto example = parseExample(lines.at(each.document.line - 1), "f");
      auto alone = encoder.encode(*example);
      ASSERT_TRUE(alone.ok());
      const EncodedDocument &wanted = alone->at(0);
      ASSERT_EQ(each.document.length, wanted.tokens.size());
      for (uint32_t i = 0; i < each.document.length; ++i) {
        EXPECT_EQ(uint32_t(tokens[each.begin + i]), wanted.tokens[i]);
        if (i > 0)
          EXPECT_EQ(mask[each.begin + i - 1], wanted.supervised[i]);
      }
    }
    supervised += uint64_t(std::count(mask.begin(), mask.end(), 1));
  }
  EXPECT_EQ(supervised, index->supervisedTokens);
}

TEST_F(ChatCorpus, DoesNotDependOnThreads) {
  writeLines("a", 300);
  writeLines("b", 70);
  options.temperature = 2;
  std::vector<std::string> files;
  for (unsigned threads : {1, 3}) {
    options.threads = threads;
    options.out = scratch / fmt::format("out{}", threads);
    auto index = packChats(options);
    ASSERT_TRUE(index.ok()) << index.message();
    files.push_back(readAll(options.out + "/shard-00000.tok") +
                    readAll(options.out + "/shard-00000.rows") +
                    readAll(options.out + "/index.json"));
  }
  EXPECT_EQ(files[0], files[1]);
}

TEST_F(ChatCorpus, MixesSourcesByWeightAndTemperature) {
  writeLines("a", 400);
  writeLines("b", 100);
  options.inputs[0].weight = 0.25;
  options.inputs[1].weight = 2.5;
  auto index = packChats(options);
  ASSERT_TRUE(index.ok()) << index.message();
  EXPECT_NEAR(double(index->sources[0].documents), 100, 25);
  EXPECT_NEAR(double(index->sources[1].documents), 250, 15);
  auto data = PackedDataset::open(options.out, index->vocabSize, 64);
  ASSERT_TRUE(data.ok());
  for (const auto &[line, count] : counts(*data)) {
    if (line.first == 0)
      EXPECT_EQ(count, 1);
    else
      EXPECT_TRUE(count == 2 || count == 3);
  }
  // 400^(1/2) to 100^(1/2) is 2 to 1.
  options.inputs[0].weight = options.inputs[1].weight = 1;
  options.temperature = 2;
  options.out = scratch / "by-temperature";
  index = packChats(options);
  ASSERT_TRUE(index.ok()) << index.message();
  EXPECT_EQ(index->sources[0].documents, 400u);
  EXPECT_EQ(index->sources[1].documents, 200u);

  EXPECT_EQ(parseChatSource("a:b/c.jsonl")->path, "a:b/c.jsonl");
  EXPECT_EQ(parseChatSource("a.jsonl:0.5")->weight, 0.5);
  EXPECT_EQ(parseChatSource("a.jsonl:x")->path, "a.jsonl:x");
  EXPECT_FALSE(parseChatSource("a.jsonl:0").ok());
  EXPECT_FALSE(parseChatSource("a.jsonl:nan").ok());
}

TEST_F(ChatCorpus, KeepsPairsTogether) {
  std::string text;
  for (int i = 0; i < 50; ++i)
    text += nlohmann::json{{"prompt", "the quick " + std::to_string(i)},
                           {"chosen", std::string(size_t(i % 7 + 1), 'c')},
                           {"rejected", std::string(size_t(i % 3 + 1), 'r')}}
                .dump() +
            "\n";
  setInput(text);
  auto index = packChats(options);
  ASSERT_TRUE(index.ok()) << index.message();
  EXPECT_EQ(index->objective, PackedObjective::Preference);
  EXPECT_EQ(index->documents, 100u);
  auto data = PackedDataset::open(options.out, index->vocabSize, 64);
  ASSERT_TRUE(data.ok());
  std::vector<PlacedDocument> documents;
  for (uint64_t row = 0; row < data->rows(); ++row) {
    ASSERT_TRUE(data->documents(row, documents).ok());
    ASSERT_EQ(documents.size() % 2, 0u);
    for (size_t i = 0; i < documents.size(); i += 2) {
      EXPECT_EQ(documents[i].document.kind, DocumentKind::Chosen);
      EXPECT_EQ(documents[i + 1].document.kind, DocumentKind::Rejected);
      EXPECT_EQ(documents[i].document.line, documents[i + 1].document.line);
    }
  }
}

TEST_F(ChatCorpus, BadLinesStopItOrAreSkipped) {
  setInput(line("a", "b") + "\n{\n" + line("c", "<|im_end|>") +
           line("d", std::string(200, '1')));
  EXPECT_EQ(error(), "T/a.jsonl:3: not valid JSON: parse error at line 1, "
                     "column 2: syntax error while parsing object key - "
                     "unexpected end of input; expected string literal; "
                     "correct the line, or leave out such lines with "
                     "--skip-bad");
  std::vector<std::string> skipped;
  options.skipsBad = true;
  options.onSkipped = [&](const std::string &why) { skipped.push_back(why); };
  auto index = packChats(options);
  ASSERT_TRUE(index.ok()) << index.message();
  EXPECT_EQ(index->documents, 1u);
  EXPECT_EQ(index->skipped, 3u);
  ASSERT_EQ(skipped.size(), 3u);
  EXPECT_NE(skipped[2].find("do not fit into a row of 64; raise --sequence, or "
                            "remove the end with --truncate"),
            std::string::npos);

  options.truncates = true;
  options.out = scratch / "truncated";
  index = packChats(options);
  ASSERT_TRUE(index.ok()) << index.message();
  EXPECT_EQ(index->documents, 2u);
  EXPECT_EQ(index->truncated, 1u);
  EXPECT_EQ(index->unendedTurns, 0u) << "of the conversation, not of the row";
  EXPECT_EQ(skipped.size(), 5u);
}

TEST_F(ChatCorpus, RefusesWhatWouldNotTeachToStop) {
  setInput(line("a", "b"));
  writeFile(scratch / "model/chat_template.jinja",
            "{% for m in messages %}{{ m.role }}: {% generation %}"
            "{{ m.content }}{% endgeneration %}<|im_end|>{% endfor %}");
  const std::string message =
      "in none of 1 documents an end-of-turn token is supervised, so that the "
      "model would not learn to stop; say with --end-of-turn TOKEN which one "
      "the template prints after an answer, or correct the template";
  EXPECT_EQ(error(), message);
  // The tokenizer of a base model whose end is another token.
  writeFile(scratch / "model/chat_template.jinja", chatml);
  writeFile(scratch / "model/tokenizer_config.json",
            R"({"eos_token": "<|endoftext|>"})");
  EXPECT_EQ(error(), message);
  options.endOfTurn = {"<|im_end|>"};
  EXPECT_EQ(error(), "packed");
}

TEST_F(ChatCorpus, RefusesBadInput) {
  setInput(line("a", "b"));
  options.endOfTurn = {"<|eot|>"};
  EXPECT_EQ(error(),
            "--end-of-turn: '<|eot|>' is not an added token of tokenizer.json");
  options.endOfTurn = {};
  writeFile(scratch / "model/tokenizer_config.json", "{}");
  EXPECT_EQ(error(), "T/model: neither tokenizer_config.json nor "
                     "generation_config.json says which token ends an answer; "
                     "say so with --end-of-turn TOKEN");
  writeFile(scratch / "model/generation_config.json",
            R"({"eos_token_id": [1, 100000]})");
  EXPECT_EQ(error(), "T/model/generation_config.json: eos_token_id 100000 is "
                     "not a token of tokenizer.json");
  std::filesystem::remove(scratch / "model/generation_config.json");
  options.endOfTurn = {"<|im_end|>"};
  setInput("\n \n");
  EXPECT_EQ(error(), "T/a.jsonl has no example");
  setInput(line("a", "b") +
           R"({"prompt": "a", "chosen": "b", "rejected": "c"})");
  EXPECT_EQ(error(), "T/a.jsonl:2: is of objective preference, the lines "
                     "before it are of sft; pack each into a folder of its "
                     "own; correct the line, or leave out such lines "
                     "with --skip-bad");
  options.out = scratch / "model";
  EXPECT_EQ(error(), "'T/model' is there already; choose another directory");
}

// Prompts are p1, p2, …, answers a1., a2., …
TEST_F(ChatCorpus, LabelledAnswersHaveMismatchedOnes) {
  constexpr int count = 5;
  std::string text;
  for (int i = 1; i <= count; ++i)
    text += fmt::format(
        R"({{"prompt": "p{0} ", "completion": "a{0}.", "label": {1}}})"
        "\n",
        i, i % 2 ? "true" : "false");
  setInput(text);
  options.threads = 3;
  auto index = packChats(options);
  ASSERT_TRUE(index.ok()) << index.message();
  EXPECT_EQ(index->objective, PackedObjective::Label);
  EXPECT_EQ(index->documents, 2u * count);
  auto data = PackedDataset::open(options.out, int64_t(index->vocabSize), 64);
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_TRUE(*data->has(DocumentKind::Mismatched));
  EXPECT_FALSE(*data->has(DocumentKind::Chosen));
  const ChatFormat format = chatFormat();
  std::map<std::string, int32_t> labels;
  std::vector<PlacedDocument> documents;
  for (uint64_t row = 0; row < data->rows(); ++row) {
    std::vector<int32_t> tokens(64), targets(64), marks(64);
    ASSERT_TRUE(
        data->row(row, {.tokens = tokens, .targets = targets, .labels = marks})
            .ok());
    ASSERT_TRUE(data->documents(row, documents).ok());
    for (const PlacedDocument &each : documents) {
      EncodedDocument shown;
      for (uint32_t i = 0; i < each.document.length; ++i) {
        shown.tokens.push_back(uint32_t(tokens[each.begin + i]));
        shown.supervised.push_back(i > 0 && targets[each.begin + i - 1] >= 0);
        EXPECT_EQ(marks[each.begin + i], marks[each.begin]);
      }
      std::string all = tokenizer::decodeBytes(format.tokenizer, shown.tokens);
      all += " " + supervisedText(format.tokenizer, shown);
      EXPECT_TRUE(labels.emplace(all, marks[each.begin]).second) << all;
    }
  }
  std::map<std::string, int32_t> expected;
  for (int i = 1; i <= count; ++i) {
    const int next = i % count + 1;
    const auto shown = [](int prompt, int answer) {
      return fmt::format("p{0} a{1}.<|im_end|> [a{1}.<|im_end|>]", prompt,
                         answer);
    };
    expected[shown(i, i)] = i % 2 ? 1 : -1;
    expected[shown(i, next)] = 0;
  }
  EXPECT_EQ(labels, expected);
}

TEST_F(ChatCorpus, AMismatchedAnswerEndsWithTheRow) {
  setInput(R"({"prompt": "p", "completion": ")" + std::string(50, 'x') +
           R"(", "label": true})"
           "\n"
           R"({"prompt": ")" +
           std::string(40, 'q') + R"(", "completion": "y", "label": false})" +
           "\n");
  auto index = packChats(options);
  ASSERT_TRUE(index.ok()) << index.message();
  EXPECT_EQ(index->documents, 4u);
  EXPECT_EQ(index->truncated, 0u);
}
