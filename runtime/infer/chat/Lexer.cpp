#include "runtime/infer/chat/Lexer.h"
#include "runtime/data/tokenizer/Unicode.h"
#include "runtime/infer/chat/Strings.h"
#include "runtime/infer/chat/Value.h"

#include <algorithm>
#include <cctype>

namespace tessera::chat {

using Kind = Token::Kind;

namespace {
class Lexer {
public:
  explicit Lexer(std::string_view text) : source(text) {}
  std::vector<Token> run();

private:
  void tag(char kind);
  void comment();
  bool rawBlock();
  void inside(char kind);
  void textBefore(size_t begin, size_t end, char sign, bool block);
  bool endsTag(char kind);
  void afterTag(char sign, bool block);
  void string(char quote);
  void number();
  void push(Kind kind, std::string text) {
    if (kind != Kind::Text || !text.empty())
      tokens.push_back({kind, std::move(text), line});
  }
  [[noreturn]] void fail(std::string_view what) const {
    throw TemplateError{fmt::format("line {}: {}", line, what)};
  }
  bool sees(std::string_view text) const {
    return std::string_view(source).substr(at).starts_with(text);
  }
  void pass(size_t count) {
    line += static_cast<uint32_t>(std::count(
        source.begin() + static_cast<std::ptrdiff_t>(at),
        source.begin() + static_cast<std::ptrdiff_t>(at + count), '\n'));
    at += count;
  }

  std::string source;
  size_t at = 0;
  uint32_t line = 1;
  bool lineStarts = true; // the last tag removed its line break
  std::vector<Token> tokens;
};
} // namespace

/// The text before a tag, without the white space that the tag trims.
void Lexer::textBefore(size_t begin, size_t end, char sign, bool block) {
  std::string_view text = std::string_view(source).substr(begin, end - begin);
  if (sign == '-') {
    text = strippedText(text, {}, false, true);
  } else if (sign != '+' && block) {
    size_t lastLine = text.rfind('\n') + 1; // 0 if there is none
    bool blank = strippedText(text.substr(lastLine), {}, true, false).empty();
    if (blank && (lastLine > 0 || lineStarts))
      text = text.substr(0, lastLine);
  }
  push(Kind::Text, std::string(text));
}

/// Trims the text after a tag.
void Lexer::afterTag(char sign, bool block) {
  lineStarts = false;
  if (sign == '-') {
    std::string_view rest = std::string_view(source).substr(at);
    size_t space = rest.size() - strippedText(rest, {}, true, false).size();
    lineStarts = space > 0 && rest[space - 1] == '\n';
    pass(space);
  } else if (sign != '+' && block && sees("\n")) {
    lineStarts = true;
    pass(1);
  }
}

void Lexer::comment() {
  size_t end = source.find("#}", at);
  if (end == source.npos)
    fail("a comment without its #}");
  char sign = source[end - 1];
  pass(end + 2 - at);
  afterTag(sign, true);
}

/// {% raw %} … {% endraw %}, whose contents are text.
bool Lexer::rawBlock() {
  auto skipSpace = [&](size_t place) {
    while (place < source.size() &&
           std::isspace(static_cast<uint8_t>(source[place])))
      ++place;
    return place;
  };
  // The end of a tag that holds only `name`, or npos; `sign` is that at its
  // end.
  auto tagEnd = [&](size_t place, std::string_view name, char &sign) {
    place = skipSpace(place);
    if (!std::string_view(source).substr(place).starts_with(name))
      return source.npos;
    place = skipSpace(place + name.size());
    sign = place < source.size() ? source[place] : ' ';
    if (sign == '-' || sign == '+')
      ++place;
    return source.compare(place, 2, "%}") == 0 ? place + 2 : source.npos;
  };
  char sign = 0;
  size_t begin = tagEnd(at, "raw", sign);
  if (begin == source.npos)
    return false;
  pass(begin - at);
  afterTag(sign, true);
  for (size_t open = source.find("{%", at); open != source.npos;
       open = source.find("{%", open + 2)) {
    char left = open + 2 < source.size() ? source[open + 2] : ' ';
    bool hasSign = left == '-' || left == '+';
    size_t end = tagEnd(open + (hasSign ? 3 : 2), "endraw", sign);
    if (end == source.npos)
      continue;
    textBefore(at, open, left, true);
    pass(end - at);
    afterTag(sign, true);
    return true;
  }
  fail("a raw block without its endraw");
}

void Lexer::tag(char kind) {
  pass(2);
  if (sees("-") || sees("+"))
    pass(1);
  if (kind == '#')
    return comment();
  if (kind == '%' && rawBlock())
    return;
  push(kind == '%' ? Kind::BlockBegin : Kind::PrintBegin, "");
  inside(kind);
}

bool Lexer::endsTag(char kind) {
  char sign = sees("-") || (kind == '%' && sees("+")) ? source[at] : 0;
  std::string_view end = kind == '%' ? "%}" : "}}";
  if (!std::string_view(source).substr(at + (sign ? 1 : 0)).starts_with(end))
    return false;
  push(kind == '%' ? Kind::BlockEnd : Kind::PrintEnd, "");
  pass(sign ? 3 : 2);
  afterTag(sign, kind == '%');
  return true;
}

void Lexer::string(char quote) {
  std::string text;
  size_t i = at + 1;
  for (; i < source.size() && source[i] != quote; ++i) {
    if (source[i] != '\\' || i + 1 == source.size()) {
      text.push_back(source[i]);
      continue;
    }
    static constexpr std::string_view escapes = "ntrbfav0\\'\"";
    char c = source[++i];
    size_t escape = escapes.find(c);
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (escape != escapes.npos) {
      text.push_back("\n\t\r\b\f\a\v\0\\'\""[escape]);
    } else if (digits != 0) {
      uint64_t value = 0;
      for (size_t j = 0; j < digits; ++j) {
        char digit = ++i < source.size() ? source[i] : ' ';
        if (!std::isxdigit(static_cast<uint8_t>(digit)))
          fail("an escape without its digits");
        value = value * 16 +
                static_cast<uint64_t>(digit <= '9' ? digit - '0'
                                                   : (digit | 0x20) - 'a' + 10);
      }
      if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
        fail("an escape that is not a valid character");
      tokenizer::appendUtf8(static_cast<uint32_t>(value), text);
    } else if (c != '\n') {
      text.append("\\").push_back(c);
    }
  }
  if (i >= source.size())
    fail("a string without its end");
  push(Kind::String, std::move(text));
  pass(i + 1 - at);
}

void Lexer::number() {
  size_t i = at;
  auto digits = [&] {
    size_t begin = i;
    while (i < source.size() && std::isdigit(static_cast<uint8_t>(source[i])))
      ++i;
    return i > begin;
  };
  digits();
  bool real = false;
  if (i + 1 < source.size() && source[i] == '.' &&
      std::isdigit(static_cast<uint8_t>(source[i + 1]))) {
    ++i;
    real = digits();
  }
  if (size_t mark = i; i < source.size() && (source[i] | 0x20) == 'e') {
    ++i;
    if (i < source.size() && (source[i] == '+' || source[i] == '-'))
      ++i;
    if (digits())
      real = true;
    else
      i = mark;
  }
  push(real ? Kind::Float : Kind::Int, source.substr(at, i - at));
  pass(i - at);
}

/// Reads the tokens up to the end of a tag.
void Lexer::inside(char kind) {
  size_t open = 0; // brackets, within which the tag cannot end
  while (at < source.size()) {
    auto c = static_cast<uint8_t>(source[at]);
    if (open == 0 && endsTag(kind))
      return;
    if (std::isspace(c)) {
      pass(1);
    } else if (std::isalpha(c) || c == '_') {
      size_t end = at;
      while (end < source.size() &&
             (std::isalnum(static_cast<uint8_t>(source[end])) ||
              source[end] == '_'))
        ++end;
      push(Kind::Name, source.substr(at, end - at));
      pass(end - at);
    } else if (std::isdigit(c)) {
      number();
    } else if (c == '"' || c == '\'') {
      string(static_cast<char>(c));
    } else {
      static constexpr std::string_view two[] = {
          "==", "!=", "<=", ">=", "//", "**"};
      size_t length = 1;
      for (std::string_view candidate : two)
        if (sees(candidate))
          length = 2;
      std::string text = source.substr(at, length);
      if (length == 1 && std::string_view("+-*/%~<>=.,:|()[]{}").find(text) ==
                             std::string_view::npos)
        fail("an unexpected character in a tag");
      if (std::string_view("([{").find(text) != std::string_view::npos)
        ++open;
      else if (std::string_view(")]}").find(text) != std::string_view::npos) {
        if (open == 0)
          fail("a bracket that was not opened");
        --open;
      }
      push(Kind::Operator, std::move(text));
      pass(length);
    }
  }
  fail(kind == '%' ? "a tag without its %}" : "a tag without its }}");
}

std::vector<Token> Lexer::run() {
  std::string plain; // line breaks are \n, and the last one is removed
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n')
      continue;
    plain.push_back(source[i] == '\r' ? '\n' : source[i]);
  }
  if (plain.ends_with('\n'))
    plain.pop_back();
  source = std::move(plain);
  while (at < source.size()) {
    size_t begin = at, found = source.find('{', at);
    while (found != source.npos &&
           (found + 1 == source.size() ||
            std::string_view("{%#").find(source[found + 1]) ==
                std::string_view::npos))
      found = source.find('{', found + 1);
    if (found == source.npos) {
      push(Kind::Text, source.substr(at));
      pass(source.size() - at);
      break;
    }
    char kind = source[found + 1];
    char sign = found + 2 < source.size() ? source[found + 2] : ' ';
    textBefore(begin, found, sign, kind != '{');
    pass(found - at);
    tag(kind);
  }
  push(Kind::End, "");
  return std::move(tokens);
}

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

} // namespace tessera::chat
