// Small tokenizers for tests, made by the trainer and edited as JSON.
#pragma once
#include "runtime/data/tokenizer/BpeTrainer.h"
#include "runtime/data/tokenizer/Tokenizer.h"

#include <nlohmann/json.hpp>

#include <random>
#include <stdexcept>

namespace tessera::tokenizer::test {

inline const char *const sampleText =
    "the quick brown fox doesn't jump; the lazy dog's there, they're here.\n"
    "  the then them these 123 1234 2024-01-02\n\n\tif (x == y) return they;\n"
    "命令行工具的选项，命令行的参数。文件和目录，文件名 open(2) 系统调用。"
    "这个命令列出目录的内容。the naïve café Ångström über\n";

inline TrainedBpe train(uint32_t vocab,
                        SplitPattern pattern = SplitPattern::Gpt2,
                        std::string text = sampleText) {
  TrainOptions options;
  options.vocabSize = vocab;
  options.pattern = pattern;
  WordCounter counter(pattern, 1);
  counter.add(std::move(text));
  StatusOr<TrainedBpe> trained = trainBpe(counter.finish(), options);
  if (!trained.ok())
    throw std::runtime_error(trained.message());
  return trained.take();
}

inline nlohmann::json
tokenizerFields(uint32_t vocab = 330,
                SplitPattern pattern = SplitPattern::Gpt2) {
  return nlohmann::json::parse(tokenizerJson(train(vocab, pattern)));
}

inline StatusOr<Tokenizer> parseFields(const nlohmann::json &fields) {
  return Tokenizer::parse(fields.dump(), "test.json");
}

inline Tokenizer mustParse(const nlohmann::json &fields) {
  StatusOr<Tokenizer> tokenizer = parseFields(fields);
  if (!tokenizer.ok())
    throw std::runtime_error(tokenizer.message());
  return tokenizer.take();
}

inline nlohmann::json addedToken(uint32_t id, std::string content) {
  return {{"id", id},
          {"content", std::move(content)},
          {"special", true},
          {"normalized", false},
          {"lstrip", false},
          {"rstrip", false},
          {"single_word", false}};
}

/// Random text over characters that the splitting patterns tell apart, with
/// bytes that are no UTF-8 where `invalid`.
inline std::string randomText(std::mt19937 &random, size_t parts,
                              bool invalid) {
  static const char *const valid[] = {"a",       "the",
                                      "T",       "'s",
                                      "'",       " ",
                                      "  ",      "\n",
                                      "\r\n",    "\t",
                                      "1",       "23",
                                      "456",     ".",
                                      "!?",      "-",
                                      "中",      "文",
                                      "，",      "é",
                                      "e\u0301", "ﬁ",
                                      "😀",      "\u00a0",
                                      "\u3000",  "<|endoftext|>",
                                      "<|",      "\u0663"};
  static const char *const broken[] = {
      "\xff", "\x80", "\xc3", "\xe4\xb8", "\xf0\x9f\x98", "\xed\xa0\x80"};
  std::string text;
  for (size_t i = 0; i < parts; ++i) {
    if (invalid && random() % 8 == 0)
      text += broken[random() % std::size(broken)];
    else
      text += valid[random() % std::size(valid)];
    if (random() % 32 == 0)
      text.push_back('\0');
  }
  return text;
}

} // namespace tessera::tokenizer::test
