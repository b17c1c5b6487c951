// regex TEXT: splits a file by the patterns of GPT-2 and of Llama 3, with the
// tokenizers' automata and with PCRE2's JIT, alternating, and searches a text
// on which backtracking is exponential. Prints the matches, MB/s and the ratio.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/data/tokenizer/regex/Regex.h"
#include "bench/Median.h"

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <pcre2.h>
#include <string>
#include <vector>

using namespace tessera;

namespace {

constexpr int kRounds = 5;

struct Pattern {
  const char *name, *text;
};
constexpr Pattern kPatterns[] = {
    {"gpt2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
             "|\\s+(?!\\S)|\\s+"},
    {"llama3",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
     "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}};

struct Count {
  size_t matches = 0;
  double seconds = 0;
};

template <typename Search> Count timed(Search search) {
  auto begin = std::chrono::steady_clock::now();
  size_t matches = search();
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return {matches, took.count()};
}

class Pcre2 {
public:
  explicit Pcre2(const char *pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern),
                         PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error,
                         &offset, nullptr);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    match = pcre2_match_data_create_from_pattern(code, nullptr);
  }
  ~Pcre2() {
    pcre2_match_data_free(match);
    pcre2_code_free(code);
  }
  Pcre2(const Pcre2 &) = delete;
  Pcre2 &operator=(const Pcre2 &) = delete;

  size_t count(const std::string &text) {
    size_t matches = 0;
    for (size_t at = 0; at < text.size(); ++matches) {
      if (pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                      text.size(), at, PCRE2_NO_UTF_CHECK, match, nullptr) < 0)
        break;
      at = pcre2_get_ovector_pointer(match)[1];
    }
    return matches;
  }

private:
  pcre2_code *code;
  pcre2_match_data *match;
};

size_t count(const tokenizer::Regex &regex, const std::string &text) {
  size_t matches = 0;
  tokenizer::RegexScanner scanner(regex, text);
  while (scanner.next())
    ++matches;
  return matches;
}

int compare(const Pattern &pattern, const std::string &text) {
  auto regex = tokenizer::Regex::compile(pattern.text);
  if (!regex.ok()) {
    std::fprintf(stderr, "regex: %s\n", regex.message().c_str());
    return 1;
  }
  Pcre2 pcre(pattern.text);
  std::vector<double> ours, theirs, ratios;
  size_t matches = 0, expected = 0;
  for (int round = 0; round < kRounds; ++round) {
    Count one = timed([&] { return count(*regex, text); });
    Count other = timed([&] { return pcre.count(text); });
    matches = one.matches;
    expected = other.matches;
    ours.push_back(double(text.size()) / 1e6 / one.seconds);
    theirs.push_back(double(text.size()) / 1e6 / other.seconds);
    ratios.push_back(other.seconds / one.seconds);
  }
  std::printf("%s: %zu matches, PCRE2 %zu; %.0f MB/s, PCRE2 %.0f MB/s; "
              "median ratio %.2f\n",
              pattern.name, matches, expected, median(ours), median(theirs),
              median(ratios));
  return matches == expected ? 0 : 1;
}

} // namespace

int main(int argc, char **argv) {
  std::ifstream file(argc == 2 ? argv[1] : "");
  if (!file) {
    std::fprintf(stderr, "usage: regex TEXT\n");
    return 1;
  }
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  int status = 0;
  for (const Pattern &pattern : kPatterns)
    status |= compare(pattern, text);
  const char *nested = "(?:a+)+[bc]";
  auto regex = tokenizer::Regex::compile(nested);
  Pcre2 pcre(nested);
  for (size_t length : {16, 24, 1000}) {
    const std::string word(length, 'a');
    std::printf("%s on %zu a: %.6f s, PCRE2 %.6f s\n", nested, length,
                timed([&] { return count(*regex, word); }).seconds,
                timed([&] { return pcre.count(word); }).seconds);
  }
  return status;
}
