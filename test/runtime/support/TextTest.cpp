// The pieces of the readers' errors.
#include "runtime/support/Text.h"

#include <array>

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Text, Utf8IsWhatTheStandardSays) {
  using namespace std::string_view_literals;
  for (std::string_view good :
       {""sv, "a\0b"sv, "\xc2\x80"sv, "\xdf\xbf"sv, "\xe0\xa0\x80"sv,
        "\xed\x9f\xbf"sv, "\xee\x80\x80"sv, "\xf0\x90\x80\x80"sv,
        "\xf4\x8f\xbf\xbf"sv})
    EXPECT_TRUE(isUtf8(good)) << good;
  for (std::string_view bad :
       {"\x80"sv, "\xc0\x80"sv, "\xc1\xbf"sv, "\xc2"sv, "\xc2\x20"sv,
        "\xe0\x9f\xbf"sv, "\xed\xa0\x80"sv, "\xe4\xb8"sv, "\xf0\x8f\xbf\xbf"sv,
        "\xf4\x90\x80\x80"sv, "\xf5\x80\x80\x80"sv, "\xff"sv})
    EXPECT_FALSE(isUtf8(bad)) << bad;
}

TEST(Text, QuoteIsOneShortLine) {
  EXPECT_EQ(quote("a\nb"), "'a\\x0ab'");
  EXPECT_EQ(quote(std::string(61, 'a')), "'" + std::string(60, 'a') + "...'");
  // 59 bytes, then a character of three: cut before it, not inside.
  EXPECT_EQ(quote(std::string(59, 'a') + "\xe4\xb8\xad"),
            "'" + std::string(59, 'a') + "...'");
  EXPECT_EQ(quote(std::string(70, '\x80')), "'...'");
}

TEST(Text, SuggestionsAreForSlipsOnly) {
  constexpr std::array<std::string_view, 2> words = {"sequence", "lr"};
  EXPECT_EQ(suggestion("seqence", words), ", did you mean 'sequence'?");
  EXPECT_EQ(suggestion("rl", words), "");
  EXPECT_EQ(suggestion("Lr", words), ", did you mean 'lr'?");
  EXPECT_EQ(suggestion("nonsense", words), "");
  EXPECT_EQ(suggestion(std::string(65, 'l'), words), "");
}

TEST(Text, ChoicesReadAsProse) {
  constexpr std::array<std::string_view, 3> words = {"a", "b", "c"};
  EXPECT_EQ(choices(words), "a, b or c");
  EXPECT_EQ(choices(std::span(words).first(1)), "a");
}

} // namespace
} // namespace tessera
