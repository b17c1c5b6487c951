// Reasoning and content of outputs, in pieces of any size.
#include "runtime/serve/Reasoning.h"
#include "runtime/support/SplitMix64.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace tessera::serve {
namespace {

const ReasoningTags &think() {
  return *reasoningTagsOf("{{ content.split('</think>')[-1] }}");
}

/// In pieces that end at random places; 0: a byte at a time.
ReasoningPieces readPieces(std::string_view text, bool isOpen, uint64_t seed) {
  ReasoningReader reader(think(), isOpen);
  SplitMix64 random(seed);
  ReasoningPieces all;
  auto add = [&](const ReasoningPieces &pieces) {
    EXPECT_TRUE(pieces.reasoning.empty() || all.content.empty());
    all.reasoning += pieces.reasoning;
    all.content += pieces.content;
  };
  while (!text.empty()) {
    const size_t length = seed ? 1 + random() % 9 : 1;
    add(reader.push(text.substr(0, length)));
    text.remove_prefix(std::min(length, text.size()));
  }
  add(reader.finish());
  return all;
}

void expectPieces(std::string_view text, bool isOpen,
                  std::string_view reasoning, std::string_view content) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const ReasoningPieces found = readPieces(text, isOpen, seed);
    EXPECT_EQ(found.reasoning, reasoning) << text << seed;
    EXPECT_EQ(found.content, content) << text << seed;
  }
}

TEST(Reasoning, TagsAreThoseOfTemplates) {
  EXPECT_EQ(think().open, "<think>");
  EXPECT_EQ(reasoningTagsOf("x [THINK] [/THINK]")->open, "[THINK]");
  EXPECT_EQ(reasoningTagsOf("<seed:think></seed:think>")->open, "<seed:think>");
  EXPECT_EQ(reasoningTagsOf("<|END_THINKING|>")->open, "<|START_THINKING|>");
  for (const char *none : {"", "<think>", "{{ messages }}", "[THINK]"})
    EXPECT_EQ(reasoningTagsOf(none), nullptr) << none;
}

TEST(Reasoning, ATemplateMayHaveBegunIt) {
  EXPECT_TRUE(think().isOpenAfter("<|assistant|><think>\n"));
  EXPECT_TRUE(think().isOpenAfter("<think>"));
  for (const char *none : {"", "\n", "think>", "<think>\n\n</think>\n\n",
                           "<think> I am", "<think>\n<|end|>"})
    EXPECT_FALSE(think().isOpenAfter(none)) << none;
}

TEST(Reasoning, PrecedesContent) {
  expectPieces("<think>\nTwo and two.\n</think>\n\nFour.\n", false,
               "Two and two.", "Four.\n");
  expectPieces("Two and two.\n</think>\n\nFour.", true, "Two and two.",
               "Four.");
  expectPieces("\n <think>a b\n\nc</think>d", false, "a b\n\nc", "d");
  expectPieces("<think></think>d", false, "", "d");
  expectPieces("</think>", true, "", "");
}

TEST(Reasoning, ABegunOneMayBeginAgain) {
  expectPieces("<think>\na</think>b", true, "a", "b");
  expectPieces("\n<think\na</think>b", true, "<think\na", "b");
}

TEST(Reasoning, WhatDoesNotBeginWithTheTagIsContent) {
  for (const char *text :
       {"", "\n ", "<thin", "<thinking>a</thinking>", "Four.",
        "Say <think>a</think>.", " \n<", "</think>"})
    expectPieces(text, false, "", text);
}

TEST(Reasoning, AfterItNothingElseIs) {
  expectPieces("<think>a</think>b<think>c</think>d</think>", false, "a",
               "b<think>c</think>d</think>");
}

TEST(Reasoning, MayNotEnd) {
  expectPieces("<think>\na </thin", false, "a </thin", "");
  expectPieces("a <b> < </ </t", true, "a <b> < </ </t", "");
  expectPieces("<thi", true, "<thi", "");
  expectPieces("<think>\n", false, "", "");
  expectPieces("<think>a \n", false, "a", "");
}

TEST(Reasoning, RandomTexts) {
  constexpr std::string_view kParts[] = {
      "<think>", "</think>", "<thin", "</", ">", " ", "\n", "a", "think"};
  SplitMix64 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (uint64_t n = random() % 9; n-- > 0;)
      text += kParts[random() % std::size(kParts)];
    const bool isOpen = random() % 2;
    const ReasoningPieces first = readPieces(text, isOpen, 0);
    expectPieces(text, isOpen, first.reasoning, first.content);
    // Nothing is lost but tags and white space.
    auto letters = [](std::string_view all) {
      return std::ranges::count(all, 'a');
    };
    EXPECT_EQ(letters(first.reasoning) + letters(first.content), letters(text));
  }
}

} // namespace
} // namespace tessera::serve
