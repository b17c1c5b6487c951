#include "runtime/eval/Extract.h"
#include "runtime/data/tokenizer/regex/Regex.h"

#include <algorithm>
#include <cctype>

namespace tessera::eval {

using tokenizer::Regex;
using tokenizer::RegexScanner;

Status checkPattern(std::string_view pattern) {
  return Regex::compile(pattern).status();
}

static std::optional<std::string_view>
find(std::string_view text, std::string_view pattern, TakenMatch which) {
  auto regex = Regex::compile(pattern);
  std::optional<std::string_view> found;
  if (!regex.ok())
    return found;
  RegexScanner scanner(*regex, text);
  while (auto match = scanner.next()) {
    found = text.substr(match->begin, match->end - match->begin);
    if (which == TakenMatch::first)
      break;
  }
  return found;
}

bool contains(std::string_view text, std::string_view pattern) {
  return find(text, pattern, TakenMatch::first).has_value();
}

std::optional<std::string> extract(std::string_view text, const Task &task) {
  for (const std::string &pattern : task.extract) {
    auto found = find(text, pattern, task.match);
    if (!found)
      return std::nullopt;
    text = *found;
  }
  return std::string(text);
}

std::string normalize(std::string text, const Task &task) {
  auto isSpace = [](char c) { return std::isspace(uint8_t(c)) != 0; };
  if (task.ignorePunctuation)
    std::erase_if(text, [](char c) { return std::ispunct(uint8_t(c)) != 0; });
  if (task.ignoreCase)
    std::ranges::transform(text, text.begin(), [](char c) {
      return 'A' <= c && c <= 'Z' ? char(c - 'A' + 'a') : c;
    });
  if (task.trim) {
    text.erase(std::find_if_not(text.rbegin(), text.rend(), isSpace).base(),
               text.end());
    text.erase(text.begin(),
               std::find_if_not(text.begin(), text.end(), isSpace));
  }
  return text;
}

} // namespace tessera::eval
