// The automaton against a slow twin: a backtracking matcher over the same
// tree, which is what "leftmost, in the order of trying" means.
#include "runtime/data/tokenizer/regex/Regex.h"
#include "runtime/data/tokenizer/Unicode.h"
#include "runtime/data/tokenizer/regex/RegexParser.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

using namespace tessera::tokenizer;
using Pieces = std::vector<std::string>;

namespace {
Pieces matches(const Regex &regex, std::string_view text) {
  Pieces found;
  RegexScanner scanner(regex, text);
  while (auto match = scanner.next())
    found.emplace_back(text.substr(match->begin, match->end - match->begin));
  return found;
}

Pieces matches(std::string_view pattern, std::string_view text) {
  auto regex = Regex::compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.message();
  return matches(*regex, text);
}

using Then = std::function<bool(size_t)>;

/// Tries `node` at `at`; `then` is what must match afterwards.
bool backtrack(const RegexNode &node, std::string_view text, size_t at,
               const Then &then) {
  bool end = at == text.size();
  auto here = end ? invalidByte : static_cast<uint8_t>(text[at]);
  switch (node.kind) {
  case RegexNode::Kind::Empty:
    return then(at);
  case RegexNode::Kind::Set:
    return !end && node.set.contains(here) && then(at + 1);
  case RegexNode::Kind::Begin:
    return at == 0 && then(at);
  case RegexNode::Kind::FollowedBy:
    return (end ? node.orEnd : node.set.contains(here)) && then(at);
  case RegexNode::Kind::Alternate:
    return std::any_of(node.children.begin(), node.children.end(),
                       [&](const RegexNode &child) {
                         return backtrack(child, text, at, then);
                       });
  case RegexNode::Kind::Concat: {
    std::function<bool(size_t, size_t)> from = [&](size_t i, size_t place) {
      return i == node.children.size()
                 ? then(place)
                 : backtrack(node.children[i], text, place,
                             [&, i](size_t next) { return from(i + 1, next); });
    };
    return from(0, at);
  }
  case RegexNode::Kind::Repeat: {
    std::function<bool(uint32_t, size_t)> from = [&](uint32_t count,
                                                     size_t place) {
      auto once = [&] {
        return count < node.most &&
               backtrack(
                   node.children[0], text, place,
                   [&](size_t next) { return from(count + 1, next); });
      };
      bool enough = count >= node.least;
      return node.lazy ? (enough && then(place)) || once()
                       : once() || (enough && then(place));
    };
    return from(0, at);
  }
  }
  return false;
}

Pieces slowMatches(const RegexNode &root, std::string_view text) {
  Pieces found;
  for (size_t at = 0; at < text.size();) {
    size_t stop = at;
    if (backtrack(root, text, at,
                  [&](size_t end) {
                    stop = end;
                    return true;
                  }) &&
        stop > at) {
      found.emplace_back(text.substr(at, stop - at));
      at = stop;
    } else {
      ++at;
    }
  }
  return found;
}

/// A random expression over a, b and the space that matches no empty text.
std::string randomPattern(std::mt19937 &random, int depth) {
  static const char *const atoms[] = {"a",    "b",   " ",   ".",
                                      "[^a]", "\\s", "[ab]"};
  static const char *const counts[] = {"",    "",      "*",      "+",
                                       "?",   "*?",    "+?",     "??",
                                       "{2}", "{1,3}", "{0,2}?", "{2,}"};
  switch (depth == 0 ? 0 : random() % 4) {
  case 0:
    return std::string(atoms[random() % std::size(atoms)]) +
           counts[random() % std::size(counts)];
  case 1:
    return randomPattern(random, depth - 1) + randomPattern(random, depth - 1);
  case 2:
    return "(?:" + randomPattern(random, depth - 1) + "|" +
           randomPattern(random, depth - 1) + ")" +
           counts[random() % std::size(counts)];
  default:
    return randomPattern(random, depth - 1) +
           (random() % 2 ? "(?!\\S)" : "(?=[a ]|$)");
  }
}
} // namespace

TEST(Regex, AgreesWithBacktracking) {
  std::mt19937 random(5);
  int compared = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string pattern = randomPattern(random, 3);
    auto regex = Regex::compile(pattern);
    if (!regex.ok()) // it matches the empty text
      continue;
    ++compared;
    RegexNode tree = *parseRegex(pattern);
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (size_t n = random() % 12; n > 0; --n)
        text.push_back("ab  \n"[random() % 5]);
      ASSERT_EQ(matches(*regex, text), slowMatches(tree, text))
          << pattern << " on " << text;
    }
  }
  EXPECT_GT(compared, 200);
}

TEST(Regex, PrefersTheFirstAlternative) {
  EXPECT_EQ(matches("a|ab", "ab"), Pieces{"a"});
  EXPECT_EQ(matches("ab|a", "ab"), Pieces{"ab"});
  EXPECT_EQ(matches("a+?b?|x", "aab"), (Pieces{"a", "ab"}));
}

TEST(Regex, ReadsWhatSplittingPatternsSay) {
  EXPECT_EQ(matches("(?i:'S|k)", "'s'\u017Fk\u212A"),
            (Pieces{"'s", "'\u017F", "k", "\u212A"}));
  EXPECT_EQ(matches("\\p{Lu}\\P{L}|[\\p{Ll}\\-\\x{4e00}-\\u9fff]+", "A1é-中B"),
            (Pieces{"A1", "é-中"}));
  EXPECT_EQ(matches("[^\\r\\n\\p{L}]?+\\p{L}++", " ab c"),
            (Pieces{" ab", " c"}));
  EXPECT_EQ(matches("ca{,2}|b{2,3}|x{,}", "bbbbbcaaax{,}"),
            (Pieces{"bbb", "bb", "caa", "x{,}"}));
  EXPECT_EQ(matches("[]a]+|\\{", "]a{"), (Pieces{"]a", "{"}));
  EXPECT_EQ(matches("\\s+$|\\d\\z", "1 \n1"), (Pieces{" ", "1"}));
  EXPECT_EQ(matches("\\S", "\xff "), Pieces{"\xff"});
}

TEST(Regex, RefusesWhatItDoesNotKnow) {
  auto message = [](std::string_view pattern) {
    return Regex::compile(pattern).message();
  };
  EXPECT_EQ(message("a*"), "the regular expression 'a*' matches the empty "
                           "text, which is not supported");
  for (std::string_view bad :
       {"(?<=a)b", "(?>a)", "\\bword", "^a", "[[:alpha:]]", "[a&&b]",
        "\\p{Han}", "(?:a?)*b", "(?=ab)c", "(?:ab)++", "\\1", "a{2000}",
        "a{20000000000}"})
    EXPECT_NE(message(bad).find("is not supported"), std::string::npos) << bad;
  for (std::string_view bad : {"a)", "(a", "[a", "a\\", "*a", "a{3,1}", "[b-a]",
                               "[a-\\d]", "\\x{110000}", "\xff", "\\p{L"}) {
    EXPECT_NE(message(bad).find(" is wrong at byte "), std::string::npos)
        << bad;
    EXPECT_EQ(message(bad).find("not supported"), std::string::npos) << bad;
  }
  EXPECT_NE(message(std::string(5000, 'a')).find("too long"),
            std::string::npos);
  EXPECT_NE(message("(?:(?:a|b)*a(?:a|b){20})").find("too large"),
            std::string::npos);
  EXPECT_NE(message("(?:(?:(?:(?:){1000}){1000}){1000}){1000}a"), "");
  EXPECT_NE(message(std::string(200, '(') + "a" + std::string(200, ')')), "");
}

TEST(Regex, ScansPastAMatchOnlyOnce) {
  // Each a is a match, and only the end of the text shows that no b follows:
  // looking again from each would take 10^11 steps.
  std::string text(400'000, 'a');
  EXPECT_EQ(matches("a*b|a", text).size(), text.size());
}
