// Forms that are no JSON: what they allow, and what is said of wrong ones.
#include "runtime/infer/grammar/PlainTextGrammar.h"
#include "runtime/infer/grammar/Gbnf.h"
#include "runtime/infer/grammar/Matcher.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tessera::grammar {
namespace {

bool matches(const Grammar &grammar, std::string_view text) {
  Matcher matcher(grammar);
  Reached reached = matcher.start();
  for (char byte : text)
    reached = matcher.step(reached.positions, uint8_t(byte));
  EXPECT_FALSE(matcher.overflowed()) << text;
  return reached.ends;
}

struct Case {
  std::string form;
  std::vector<std::string> yes, no;
};

template <typename Read> void check(const Case &each, const Read &read) {
  SCOPED_TRACE(each.form);
  auto grammar = read(each.form);
  ASSERT_TRUE(grammar.ok()) << grammar.message();
  for (const std::string &text : each.yes)
    EXPECT_TRUE(matches(*grammar, text)) << text;
  for (const std::string &text : each.no)
    EXPECT_FALSE(matches(*grammar, text)) << text;
}

//===--- regular expressions ----------------------------------------------===//

TEST(RegexForm, IsTheWholeText) {
  const std::string many(5000, 'a');
  const Case cases[] = {
      {"abc", {"abc"}, {"", "ab", "abcd", "xabc", " abc", "abc "}},
      {"^a|b$", {"a", "b"}, {"", "ab", "ax", "xb"}},
      {"^(?:yes|no)$", {"yes", "no"}, {"ye", "yesno"}},
      {"", {""}, {" ", "a"}},
      {"a||b", {"", "a", "b"}, {"ab"}},
      {"()", {""}, {"a"}},
      {"(a+)+b", {"ab", many + "b"}, {many, "b"}},
      {"(a*)*", {"", "a", many}, {"b", many + "b"}},
      {"((a?b?)*c?)*", {"", "abcabc", "cab"}, {"d"}},
      {"(?i:yes)", {"yes", "YES", "yEs"}, {"ye"}},
      {R"(\d{3}-\d{4})", {"555-0199"}, {"5550199", "٣٣٣-٣٣٣٣"}},
      {R"([^"\n]*\n?)", {"", "a\\b'", "x\n"}, {"\"", "\n\n"}},
      {".", {"a", "é", "😀", "\\", "\"", "\x01"}, {"", "\n", "\xC3", "ab"}},
      {R"([à-ÿ]\u00e9\u{1F600}\x41)", {"ÿé😀A"}, {"aé😀A", "ÿe😀A"}},
      {R"(\p{Lu}\P{L}+)", {"É1", "A-"}, {"é1", "ÉÉ"}},
      {R"(\w+@\w+\.com\n)", {"a_1@b.com\n"}, {"a@b.com", "a@bxcom\n"}},
      {"a{0}", {""}, {"a"}},
      {"[a-c]{2,3}?", {"ab", "abc"}, {"a", "abca"}},
  };
  for (const Case &each : cases)
    check(each, grammarOfRegex);
}

TEST(RegexForm, SaysWhatItDoesNotServe) {
  auto problem = [](std::string_view pattern) {
    return std::string(grammarOfRegex(pattern).message());
  };
  EXPECT_EQ(problem("a(^b)c"),
            "the pattern 'a(^b)c' has lookahead, or an anchor that is not at "
            "an end of it");
  EXPECT_EQ(problem(R"(a\b)"), "the regular expression 'a\\b' has the escape "
                               "\\b at byte 3, which is not supported");
  EXPECT_EQ(problem("b(a"), "the regular expression 'b(a' is wrong at byte 1: "
                            "a group without its )");
  EXPECT_EQ(problem("[a"), "the regular expression '[a' is wrong at byte 0: a "
                           "class without its ]");
  EXPECT_EQ(problem("a|*"), "the regular expression 'a|*' is wrong at byte 2: "
                            "a quantifier that has nothing to repeat");
  EXPECT_EQ(problem("a{3"), "the regular expression 'a{3' is wrong at byte 1: "
                            "a { that counts nothing; write \\{ for the "
                            "character");
  // ECMA-262 has neither these nor possessive ones.
  for (const char *each :
       {"a**", "a*+", "a++", "a?+", "a+{2}", "a{2}*", "a*??", "(?:a)+*"})
    EXPECT_NE(problem(each).find("a quantifier of a quantifier"),
              std::string::npos)
        << each;
  EXPECT_EQ(problem("(?:a*)*a*?a{2}?a??"), "") << "which are right";
  for (const char *each : {"a)",        "[a",
                           "a{3",       "{3}",
                           "*",         "a**+",
                           "a{3,2}",    "a{1001}",
                           "(?<n>a)",   "(?=a)b",
                           R"(\1)",     R"(\k<a>)",
                           "[z-a]",     R"(\u{110000})",
                           R"(\ud800)", R"(\p{Nothing})",
                           "\\",        "\xFF",
                           "[\xFF]",    "[[:alpha:]]",
                           "(?i)a"}) {
    std::string message = problem(each);
    EXPECT_FALSE(message.empty()) << each;
    EXPECT_EQ(message.find('\n'), message.npos) << each;
  }
}

TEST(RegexForm, IsBoundedInStatesAndTime) {
  auto problem = [](const std::string &pattern) {
    return std::string(grammarOfRegex(pattern).message());
  };
  EXPECT_EQ(problem(std::string(60'000, '(')),
            "the pattern has 60000 bytes, at most 4096 are supported");
  EXPECT_NE(problem(std::string(4000, '(')).find("nested too deeply"),
            std::string::npos);
  EXPECT_EQ(problem("((a{1000}){1000}){1000}"),
            "it is too large: more than 131072 states");
  EXPECT_NE(problem("(((){1000}){1000}){1000}").find("repeats too often"),
            std::string::npos);
}

size_t edgesOf(const Grammar &grammar) {
  size_t edges = 0;
  for (uint32_t i = 0; i < grammar.size(); ++i)
    edges += grammar.node(i).edges.size();
  return edges;
}

// However often a set of many ranges stands there, its edges are there once.
TEST(RegexForm, IsBoundedInEdges) {
  std::string odd;
  for (int code = 1; code < 0x80; code += 2)
    odd += fmt::format("\\x{:02x}", code);
  auto many = grammarOfRegex("([" + odd + "]{1000}){130}");
  ASSERT_TRUE(many.ok()) << many.message();
  EXPECT_LT(edgesOf(*many), 2 * many->size());
  auto few = grammarOfRegex("[" + odd + "]{2}");
  ASSERT_TRUE(few.ok());
  EXPECT_TRUE(matches(*few, "\x01\x7F"));
  EXPECT_FALSE(matches(*few, "\x01\x02"));

  Grammar grammar;
  uint32_t start = grammar.startOf(grammar.addRule());
  for (size_t i = 0; i <= Grammar::kMaxEdges; ++i)
    grammar.addBytes(start, 'a', 'b', start);
  EXPECT_TRUE(grammar.isFull());
  EXPECT_EQ(grammar.finish().message(),
            "it is too large: more than 524288 steps between states");
}

//===--- choices ----------------------------------------------------------===//

TEST(ChoiceForm, IsOneOfItsTexts) {
  auto grammar = grammarOfChoice({"yes", "yesterday", "no", "", "日", "日本"});
  ASSERT_TRUE(grammar.ok()) << grammar.message();
  for (const char *text : {"yes", "yesterday", "no", "", "日", "日本"})
    EXPECT_TRUE(matches(*grammar, text)) << text;
  for (const char *text : {"y", "yest", "nono", " yes", "本", "\xE6"})
    EXPECT_FALSE(matches(*grammar, text)) << text;
  EXPECT_FALSE(grammarOfChoice({}).ok());
  EXPECT_FALSE(grammarOfChoice({"a", "\xFF"}).ok());
  EXPECT_FALSE(grammarOfChoice(std::vector<std::string>(20'001)).ok());
  std::vector<std::string> many;
  for (int i = 0; i < 5000; ++i)
    many.push_back(fmt::format("{:05}", i * 7919 % 100'000));
  auto numbers = grammarOfChoice(many);
  ASSERT_TRUE(numbers.ok());
  EXPECT_TRUE(matches(*numbers, many.back()));
}

//===--- grammars ---------------------------------------------------------===//

TEST(Gbnf, IsTheWholeText) {
  const std::string many(5000, 'a');
  const Case cases[] = {
      {R"(root ::= "abc")", {"abc"}, {"", "ab", "abcd", " abc"}},
      {R"(root ::= "")", {""}, {"a"}},
      {R"(root ::= | "a")", {"", "a"}, {"aa"}},
      {R"(root ::= ("a" |))", {"", "a"}, {"aa"}},
      {"# a comment\nroot ::= # another\n\n  \"a\"\n  | \"b\"\r\n",
       {"a", "b"},
       {"ab", ""}},
      {R"(root ::= "a" x
          "c"
          x ::= "b"?)",
       {"ac", "abc"},
       {"abbc", "a"}},
      {R"(root ::= ("a" "b"?)+ [0-9]*)", {"a", "abaab12"}, {"b", "1", ""}},
      {R"(root ::= [a-c]{2} "x"{0,2} "y"{1,})",
       {"aby", "abxxyyy"},
       {"ay", "abxxxy", "abxx"}},
      {R"(root ::= ("a"{2}){2} ("b" | "c"{3}){0,1})",
       {"aaaa", "aaaab", "aaaaccc"},
       {"aaa", "aaaabb", "aaaac"}},
      // Ends with itself: a list, of any length.
      {R"(root ::= "a" root | "b")", {"b", "ab", many + "b"}, {many, ""}},
      {R"(root ::= "a" rest
          rest ::= root?)",
       {many},
       {""}},
      {R"(root ::= item ("," root)?
          item ::= "[" root? "]" | [0-9]+)",
       {"1", "1,2", "[],[[1]]", "[1,2],3"},
       {"", "[", "1,", "]["}},
      {R"(root ::= ("a"* "b"*)* "c")", {"c", "abbac"}, {"", "ab"}},
      {R"(root ::= ("a"+)+ "b")", {many + "b"}, {many, "b"}},
      {R"(root ::= [^"\\\x7F\x00-\x1F] | [\\] ["\\bfnrt])",
       {"a", "é", "😀", "\\n", "\\\""},
       {"\"", "\x7F", "\x01", "\\x"}},
      {R"(root ::= . .)", {"a\n", "日本", "\x01\x7F"}, {"a", "\xE6\x97"}},
      {R"(root ::= "\x41\u00e9\U0001F600\t\\\"\[\]" [\]\^\-] [a-])",
       {"Aé😀\t\\\"[]]a", "Aé😀\t\\\"[]^-"},
       {"Aé😀\t\\\"[]b-"}},
      {R"(root ::= hira-gana
          hira-gana ::= [ぁ-ゟ]+)",
       {"ひらがな"},
       {"カ"}},
      // A rule without a finite text is an alternative that is never taken.
      {R"(root ::= "a" | endless
          endless ::= "b" endless)",
       {"a"},
       {"b", "ba"}},
  };
  for (const Case &each : cases)
    check(each, grammarOfGbnf);
}

TEST(Gbnf, SaysWhereItIsWrong) {
  const std::pair<const char *, const char *> cases[] = {
      {"", "line 1, column 1: unknown rule 'root'"},
      {"x ::= \"a\"", "line 1, column 1: unknown rule 'root'"},
      {"root ::= \"é\" a", "line 1, column 14: unknown rule 'a'"},
      {"root ::= a b\n\nb ::= c a", "line 1, column 10: unknown rule 'a'"},
      {"root ::= \"a\"\nroot ::= \"b\"",
       "line 2, column 1: duplicate rule 'root'"},
      {"root = \"a\"", "line 1, column 1: no rule: NAME ::= …"},
      {"root ::= \"a\" \"b",
       "line 1, column 14: a string without its closing quote"},
      {"root ::= [a", "line 1, column 10: a class without its ]"},
      {"root ::= []", "line 1, column 10: an empty class"},
      {"root ::= [b-a]", "line 1, column 11: a descending range"},
      {"root ::= (\n  (\"a\"\n)", "line 1, column 10: a group without its )"},
      {"root ::= \"a\"\n)", "line 2, column 1: a ) without its group"},
      {"root ::= *", "line 1, column 10: a repetition without an operand"},
      {"root ::= \"a\"?+",
       "line 1, column 14: a repetition without an operand"},
      {"root ::= \"a\"{2,1}", "line 1, column 13: a descending range of "
                              "repetitions"},
      {"root ::= \"a\"{,2}", "line 1, column 14: a number is missing"},
      {"root ::= \"a\"{2", "line 1, column 15: a } is missing"},
      {"root ::= \"a\"{99999999999999999999}",
       "line 1, column 14: more than 131072 repetitions"},
      {"root ::= <think>", "line 1, column 10: tokens are not supported"},
      {"root ::= !<[1]>", "line 1, column 10: tokens are not supported"},
      {"root ::= /a/",
       "line 1, column 10: expected a string, class, group or name of a rule"},
      {R"(root ::= "\q")", "line 1, column 12: an unknown escape"},
      {R"(root ::= "\x4")", "line 1, column 13: an escape of 2 hexadecimal "
                            "digits"},
      {R"(root ::= "\ud800")",
       "line 1, column 13: an escape that is not a valid character"},
      {"root ::= \"\\", "line 1, column 12: a backslash at the end"},
      {"root ::= root \"a\" | \"b\"",
       "line 1, column 1: the rule 'root' begins with itself (left recursion); "
       "write it as a repetition"},
      {"root ::= \"x\" | sum\nsum ::= n sum \"+\" n | n\nn ::= [0-9]*",
       "line 2, column 1: the rule 'sum' begins with itself (left recursion); "
       "write it as a repetition"},
      {"root ::= a{2}\na ::= (b | \"x\")*\nb ::= \"\" (a{0,3} \"y\")",
       "line 2, column 1: the rule 'a' begins with itself (left recursion); "
       "write it as a repetition"},
      {"root ::= \"a\" root",
       "line 1, column 1: the rule 'root' matches no finite string"},
      {"root ::= \"a\" x\n\nx ::= x \"b\"",
       "line 3, column 1: the rule 'x' begins with itself (left recursion); "
       "write it as a repetition"},
      {"root ::= root \"a\"",
       "line 1, column 1: the rule 'root' begins with itself (left recursion); "
       "write it as a repetition"},
      {"root ::= \"a\"{131072}", "it is too large: more than 131072 states"},
      {"root ::= (\"a\"{131072} (", "it is too large: more than 131072 states"},
      {"root ::= \"\xFF\"", "the grammar is not UTF-8"},
  };
  for (auto [text, message] : cases)
    EXPECT_EQ(grammarOfGbnf(text).message(), message) << text;
  // A NUL is a sign like any other.
  EXPECT_FALSE(grammarOfGbnf(std::string_view("root\0 ::= \"a\"", 13)).ok());
}

TEST(Gbnf, IsBoundedInStatesAndTime) {
  EXPECT_EQ(grammarOfGbnf("root ::= " + std::string(60'000, '(')).message(),
            "line 1, column 110: groups nested too deeply");
  EXPECT_EQ(grammarOfGbnf(std::string(200'000, ' ')).message(),
            "the grammar has 200000 bytes, at most 131072 are supported");
  // Copies of copies are a sum, not a product.
  auto nested = grammarOfGbnf("root ::= (((\"a\"{1000}){1000}){1000})?");
  ASSERT_TRUE(nested.ok()) << nested.message();
  EXPECT_LT(nested->size(), 10'000u);
  EXPECT_TRUE(matches(*nested, ""));
  EXPECT_FALSE(matches(*nested, std::string(5000, 'a')));
  // Many rules, each of which begins with the next, and the last with the
  // first.
  std::string ring = "root ::= r0\n";
  for (int i = 0; i < 5000; ++i)
    ring += fmt::format("r{} ::= r{}|\"\"\n", i, (i + 1) % 5000);
  EXPECT_EQ(grammarOfGbnf(ring).message(),
            "line 2, column 1: the rule 'r0' begins with itself (left "
            "recursion); write it as a repetition");
  // Of nested repetitions of nothing no text has an end, but each has a bound.
  auto nothing = grammarOfGbnf("root ::= (((\"\"{1000}){1000}){1000}) \"a\"");
  ASSERT_TRUE(nothing.ok()) << nothing.message();
  Matcher matcher(*nothing);
  matcher.start();
  EXPECT_TRUE(matcher.overflowed());
}

TEST(Gbnf, HasManyAlternatives) {
  std::string words = "root ::= \"x\"";
  for (int i = 0; i < 900; ++i)
    words += fmt::format(" | \"{}\"", i);
  auto grammar = grammarOfGbnf(words);
  ASSERT_TRUE(grammar.ok()) << grammar.message();
  EXPECT_TRUE(matches(*grammar, "899"));
  EXPECT_FALSE(matches(*grammar, "900"));
}

// As decoders need it that drop a text's first space.
TEST(PlainTextGrammar, MayBeginWithASpace) {
  auto regex = grammarOfRegex("a*");
  auto rules = grammarOfGbnf("root ::= \"a\" root | \" \"");
  auto nothing = grammarOfChoice({""});
  ASSERT_TRUE(regex.ok() && rules.ok() && nothing.ok());
  regex->beginWithSpace();
  rules->beginWithSpace();
  nothing->beginWithSpace();
  EXPECT_TRUE(matches(*regex, " aa"));
  EXPECT_FALSE(matches(*regex, "aa"));
  EXPECT_TRUE(matches(*rules, " aa "));
  EXPECT_FALSE(matches(*rules, " a a "));
  EXPECT_TRUE(matches(*nothing, ""));
}

} // namespace
} // namespace tessera::grammar
