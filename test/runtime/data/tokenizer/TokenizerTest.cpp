#include "TestTokenizers.h"

#include <gtest/gtest.h>

using namespace tessera::tokenizer;
using namespace tessera::tokenizer::test;
using Ids = std::vector<uint32_t>;

static std::string bytesOf(const Tokenizer &tokenizer, const Ids &ids) {
  return decodeBytes(tokenizer, ids);
}

TEST(Tokenizer, RoundTripsAnyBytes) {
  std::mt19937 random(1);
  for (SplitPattern pattern :
       {SplitPattern::Gpt2, SplitPattern::Cl100k, SplitPattern::Qwen2}) {
    Tokenizer tokenizer = mustParse(tokenizerFields(340, pattern));
    Encoder encoder(tokenizer);
    for (int round = 0; round < 500; ++round) {
      std::string text = randomText(random, 40, /*invalid=*/true);
      for (SpecialText special : {SpecialText::Parse, SpecialText::Plain})
        ASSERT_EQ(bytesOf(tokenizer, encoder.encode(text, special)), text);
    }
  }
}

TEST(Tokenizer, CachedAndFreshEncodersAgree) {
  Tokenizer tokenizer = mustParse(tokenizerFields());
  Encoder warm(tokenizer);
  std::mt19937 random(2);
  // Far more pieces than the cache holds, so that it starts anew.
  for (int round = 0; round < 3000; ++round) {
    std::string text = randomText(random, 60, true) + std::to_string(random()) +
                       "x" + std::to_string(random());
    Encoder fresh(tokenizer);
    if (round % 100 == 0) {
      ASSERT_EQ(warm.encode(text), fresh.encode(text));
    } else {
      (void)warm.encode(text);
    }
  }
}

TEST(Tokenizer, ReadsWhatItWrites) {
  TrainedBpe trained = train(340);
  std::string json = tokenizerJson(trained);
  auto tokenizer = Tokenizer::parse(json, "test.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  ASSERT_EQ(tokenizer->vocabSize(), trained.tokens.size());
  for (uint32_t id = 0; id < tokenizer->vocabSize(); ++id)
    EXPECT_EQ(tokenizer->token(id).bytes, trained.tokens[id]);
  EXPECT_EQ(tokenizer->documentEnd(), 0u);
  EXPECT_TRUE(tokenizer->token(0).special);
  EXPECT_FALSE(tokenizer->token(1).special);
  EXPECT_FALSE(tokenizer->token(1u << 30).present);
}

TEST(Tokenizer, SpecialTextIsParsedOrPlain) {
  Tokenizer tokenizer = mustParse(tokenizerFields());
  Encoder encoder(tokenizer);
  std::string text = "the<|endoftext|>then";
  Ids parsed = encoder.encode(text, SpecialText::Parse);
  Ids plain = encoder.encode(text, SpecialText::Plain);
  EXPECT_EQ(std::count(parsed.begin(), parsed.end(), 0u), 1);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 0u), 0);
  EXPECT_EQ(decode(tokenizer, parsed), text);
  EXPECT_EQ(decode(tokenizer, parsed, /*skipSpecial=*/true), "thethen");
  EXPECT_EQ(decode(tokenizer, plain, /*skipSpecial=*/true), text);
}

TEST(Tokenizer, AddedTokensTakeTheLongestAndStrip) {
  nlohmann::json fields = tokenizerFields();
  uint32_t next = static_cast<uint32_t>(fields["model"]["vocab"].size());
  nlohmann::json strip = addedToken(next + 2, "<s>");
  strip["lstrip"] = strip["rstrip"] = true;
  fields["added_tokens"].push_back(addedToken(next, "<tool>"));
  fields["added_tokens"].push_back(addedToken(next + 1, "<tool>>"));
  fields["added_tokens"].push_back(strip);
  fields["added_tokens"].push_back(addedToken(next + 9, "<far>"));
  Tokenizer tokenizer = mustParse(fields);
  EXPECT_EQ(tokenizer.vocabSize(), next + 10);
  EXPECT_FALSE(tokenizer.token(next + 5).present) << "a gap between ids";
  Encoder encoder(tokenizer);
  EXPECT_EQ(encoder.encode("<tool>><tool>"), (Ids{next + 1, next}));
  EXPECT_EQ(encoder.encode(" \u3000<s>\n \t<far>"), (Ids{next + 2, next + 9}));
  EXPECT_EQ(encoder.encode("<far> <s>"), (Ids{next + 9, next + 2}));
  EXPECT_EQ(decode(tokenizer, Ids{next + 5}), "");
}

TEST(Tokenizer, NormalizesWhereToldTo) {
  nlohmann::json fields = tokenizerFields(330, SplitPattern::Qwen2);
  Tokenizer plain = mustParse(fields);
  fields["normalizer"] = {{"type", "NFC"}};
  uint32_t next = static_cast<uint32_t>(fields["model"]["vocab"].size());
  nlohmann::json token = addedToken(next, "caf\u00E9");
  token["normalized"] = true;
  token["special"] = false;
  fields["added_tokens"].push_back(token);
  Tokenizer nfc = mustParse(fields);
  Encoder plainEncoder(plain), nfcEncoder(nfc);
  EXPECT_EQ(decode(plain, plainEncoder.encode("e\u0301")), "e\u0301");
  EXPECT_EQ(decode(nfc, nfcEncoder.encode("e\u0301")), "\u00E9");
  EXPECT_EQ(nfcEncoder.encode("cafe\u0301"), Ids{next});
}

TEST(Tokenizer, PrefixSpaceGoesBeforeEveryStretchOfText) {
  nlohmann::json fields = tokenizerFields();
  fields["pre_tokenizer"]["add_prefix_space"] = true;
  Tokenizer tokenizer = mustParse(fields);
  Encoder encoder(tokenizer);
  EXPECT_EQ(
      decode(tokenizer, encoder.encode("the<|endoftext|> fox<|endoftext|>x")),
      " the<|endoftext|> fox<|endoftext|> x");
  EXPECT_TRUE(encoder.encode("").empty());
}

TEST(Tokenizer, IgnoreMergesTakesWholePieces) {
  nlohmann::json fields = tokenizerFields();
  uint32_t next = static_cast<uint32_t>(fields["model"]["vocab"].size());
  // "Ġxyzzy" is a token that no merge makes.
  fields["model"]["vocab"]["\u0120xyzzy"] = next;
  Tokenizer merging = mustParse(fields);
  fields["model"]["ignore_merges"] = true;
  Tokenizer ignoring = mustParse(fields);
  Encoder mergingEncoder(merging), ignoringEncoder(ignoring);
  EXPECT_GT(mergingEncoder.encode(" xyzzy").size(), 1u);
  EXPECT_EQ(ignoringEncoder.encode(" xyzzy"), Ids{next});
  EXPECT_EQ(ignoringEncoder.encode(" the"), mergingEncoder.encode(" the"));
}

TEST(Tokenizer, MergesMayBeStringsOrPairs) {
  nlohmann::json fields = tokenizerFields();
  Tokenizer strings = mustParse(fields);
  for (auto &merge : fields["model"]["merges"]) {
    std::string text = merge;
    size_t space = text.find(' ');
    merge = {text.substr(0, space), text.substr(space + 1)};
  }
  Tokenizer pairs = mustParse(fields);
  EXPECT_EQ(Encoder(strings).encode(sampleText),
            Encoder(pairs).encode(sampleText));
}

TEST(Tokenizer, StreamsWholeCharactersOnly) {
  Tokenizer tokenizer = mustParse(tokenizerFields(257)); // bytes only
  Encoder encoder(tokenizer);
  std::string text = "a中😀\xff é";
  Ids ids = encoder.encode(text);
  ASSERT_EQ(ids.size(), text.size());
  StreamDecoder decoder(tokenizer);
  std::string streamed;
  std::vector<std::string> steps;
  for (uint32_t id : ids) {
    steps.push_back(decoder.push(id));
    streamed += steps.back();
  }
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_EQ(streamed, decode(tokenizer, ids));
  EXPECT_EQ(std::vector<std::string>(steps.begin(), steps.begin() + 4),
            (std::vector<std::string>{"a", "", "", "中"}));
  decoder.push(ids[1]); // the first byte of 中
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(Tokenizer, StreamingEqualsDecoding) {
  Tokenizer tokenizer = mustParse(tokenizerFields());
  std::mt19937 random(4);
  for (int round = 0; round < 500; ++round) {
    Ids ids(random() % 30);
    for (uint32_t &id : ids)
      id = static_cast<uint32_t>(random() % (tokenizer.vocabSize() + 5));
    StreamDecoder decoder(tokenizer);
    std::string streamed;
    for (uint32_t id : ids)
      streamed += decoder.push(id);
    streamed += decoder.finish();
    ASSERT_EQ(streamed, decode(tokenizer, ids));
  }
}

TEST(Tokenizer, EndlessTextIsNotQuadratic) {
  // A million of one letter is one piece; n² steps would take hours.
  std::string text(1'000'000, 'a');
  for (SplitPattern pattern : {SplitPattern::Gpt2, SplitPattern::Cl100k}) {
    std::string words;
    for (int i = 0; i < 20; ++i)
      words += "aaaaaaaaaaaaaaaa ";
    Tokenizer tokenizer =
        *Tokenizer::parse(tokenizerJson(train(270, pattern, words)), "test");
    Encoder encoder(tokenizer);
    Ids ids = encoder.encode(text);
    EXPECT_LT(ids.size(), text.size() / 4);
    EXPECT_EQ(bytesOf(tokenizer, ids), text);
    for (const char *part : {" ", "\n ", "<|endoftext", "'", "e\u0301"}) {
      std::string repeated;
      while (repeated.size() < 300'000)
        repeated += part;
      EXPECT_EQ(bytesOf(tokenizer, encoder.encode(repeated)), repeated);
    }
  }
}

// The tokens around a text stay when it loses its end.
TEST(Tokenizer, CutsFramedTexts) {
  nlohmann::json fields = tokenizerFields();
  const uint32_t begin = 5, end = 6;
  fields["post_processor"] = {
      {"type", "BertProcessing"}, {"cls", {"x", begin}}, {"sep", {"y", end}}};
  Tokenizer tokenizer = mustParse(fields);
  Encoder encoder(tokenizer);
  const std::vector<uint32_t> whole = encoder.encodeFramed("the quick fox");
  ASSERT_GT(whole.size(), 5u);
  for (size_t most = 0; most <= whole.size() + 1; ++most) {
    std::vector<uint32_t> ids = whole;
    ASSERT_EQ(encoder.cutFramed(ids, most), most > 2);
    if (most <= 2)
      continue;
    ASSERT_EQ(ids.size(), std::min(most, whole.size()));
    EXPECT_EQ(ids.back(), end);
    EXPECT_TRUE(std::equal(ids.begin(), ids.end() - 1, whole.begin()));
  }
}
