// Methods of strings, lists and dictionaries, and the global functions.
#include "runtime/infer/chat/Methods.h"
#include "runtime/data/tokenizer/Unicode.h"
#include "runtime/infer/chat/Evaluator.h"
#include "runtime/infer/chat/Strings.h"

#include <algorithm>
#include <array>

namespace tessera::chat {

using Kind = Value::Kind;

static constexpr std::array<std::string_view, 27> stringMethods = {
    "strip",      "lstrip",     "rstrip",   "split",        "rsplit",
    "splitlines", "startswith", "endswith", "upper",        "lower",
    "capitalize", "title",      "replace",  "find",         "rfind",
    "count",      "join",       "isdigit",  "isalpha",      "isalnum",
    "isspace",    "isupper",    "islower",  "removeprefix", "removesuffix",
    "index",      "isnumeric"};

bool isMethod(const Value &value, const std::string &name) {
  auto among = [&](auto... names) { return ((name == names) || ...); };
  switch (value.kind()) {
  case Kind::String:
    return std::find(stringMethods.begin(), stringMethods.end(), name) !=
           stringMethods.end();
  case Kind::List:
  case Kind::Tuple:
    return among("index", "count");
  case Kind::Dict:
    return among("items", "keys", "values", "get");
  default:
    return false;
  }
}

/// The string argument at `position`, empty where it is absent or none.
static std::string textArgument(const Arguments &arguments, size_t position,
                                std::string_view name) {
  const Value *value = arguments.find(position, name);
  if (!value || value->is(Kind::None))
    return {};
  if (value->is(Kind::Undefined))
    value->failUndefined();
  if (!value->is(Kind::String))
    throw TemplateError{
        fmt::format("a string is expected, not a {}", value->typeName())};
  return value->text();
}

static int64_t integerArgument(const Arguments &arguments, size_t position,
                               std::string_view name, int64_t otherwise) {
  const Value *value = arguments.find(position, name);
  if (!value)
    return otherwise;
  if (!value->isNumber() || value->is(Kind::Float))
    throw TemplateError{
        fmt::format("an integer is expected, not a {}", value->typeName())};
  return value->integer();
}

static List valuesOf(Evaluator &evaluator, std::vector<std::string> strings) {
  List list;
  for (std::string &string : strings)
    list.push_back(evaluator.make(std::move(string)));
  return list;
}

/// startswith and endswith accept a string or a tuple of strings.
static bool hasAffix(const std::string &text, const Arguments &arguments,
                     bool atStart) {
  const Value *given = arguments.find(0, "prefix");
  if (!given)
    throw TemplateError{"startswith and endswith need an argument"};
  auto matches = [&](const Value &affix) {
    if (!affix.is(Kind::String))
      throw TemplateError{
          fmt::format("a string is expected, not a {}", affix.typeName())};
    return atStart ? text.starts_with(affix.text())
                   : text.ends_with(affix.text());
  };
  if (given->is(Kind::Tuple))
    return std::any_of(given->list().begin(), given->list().end(), matches);
  return matches(*given);
}

/// isdigit, isalpha, …: not empty, and every character is of that kind.
static bool isAll(const std::string &name, const std::string &text) {
  std::u32string points = codePoints(text);
  bool cased = false;
  for (char32_t c : points) {
    std::string_view category =
        tokenizer::categoryNames[tokenizer::generalCategory(c)];
    bool letter = category[0] == 'L';
    bool upper = category == "Lu", lower = category == "Ll";
    bool digit = category == "Nd";
    cased |= upper || lower;
    bool holds = name == "isdigit"     ? digit
                 : name == "isnumeric" ? category[0] == 'N'
                 : name == "isalpha"   ? letter
                 : name == "isalnum"   ? letter || category[0] == 'N'
                 : name == "isspace"
                     ? tokenizer::isWhiteSpace(c) || (c >= 0x1C && c <= 0x1F)
                 : name == "isupper" ? !lower
                                     : !upper;
    if (!holds)
      return false;
  }
  return name == "isupper" || name == "islower" ? cased : !points.empty();
}

/// The offset of a match in characters.
static int64_t foundAt(const std::string &text, size_t place) {
  if (place == std::string::npos)
    return -1;
  return std::count_if(
      text.begin(), text.begin() + static_cast<std::ptrdiff_t>(place),
      [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

static int64_t occurrences(const std::string &text, const std::string &what) {
  if (what.empty())
    return static_cast<int64_t>(codePoints(text).size()) + 1;
  int64_t count = 0;
  for (size_t at = text.find(what); at != text.npos;
       at = text.find(what, at + what.size()))
    ++count;
  return count;
}

static std::vector<std::string> splitFromRight(std::string_view text,
                                               std::string_view separator,
                                               int64_t count) {
  if (separator.empty() || count < 0) {
    if (count >= 0)
      throw TemplateError{"rsplit with a count needs a separator"};
    return splitText(text, separator, -1);
  }
  std::vector<std::string> parts;
  for (; count != 0; --count) {
    size_t found = text.rfind(separator);
    if (found == text.npos)
      break;
    parts.emplace_back(text.substr(found + separator.size()));
    text = text.substr(0, found);
  }
  parts.emplace_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

static Value splitMethod(Evaluator &evaluator, const std::string &name,
                         const std::string &text, const Arguments &arguments) {
  if (name == "splitlines") {
    if (!arguments.positional.empty() || !arguments.named.empty())
      throw TemplateError{"arguments of splitlines are not supported"};
    uint64_t lines =
        1 + static_cast<uint64_t>(std::ranges::count_if(text, [](char c) {
          return (c >= 0 && c < 0x20) || c == '\xc2' || c == '\xe2';
        }));
    evaluator.chargeBytes(lines * perText);
    return evaluator.make(valuesOf(evaluator, splitLines(text)));
  }
  const Value *given = arguments.find(0, "sep");
  std::string separator = textArgument(arguments, 0, "sep");
  if (given && given->is(Kind::String) && separator.empty())
    throw TemplateError{"the separator of split must not be empty"};
  int64_t count = integerArgument(arguments, 1, "maxsplit", -1);
  uint64_t parts =
      1 + (separator.empty()
               ? characters(text) / 2
               : static_cast<uint64_t>(occurrences(text, separator)));
  if (count >= 0)
    parts = std::min(parts, static_cast<uint64_t>(count) + 1);
  evaluator.chargeBytes(parts * perText);
  return evaluator.make(valuesOf(
      evaluator, name == "split" ? splitText(text, separator, count)
                                 : splitFromRight(text, separator, count)));
}

static Value stringMethod(Evaluator &evaluator, const std::string &name,
                          const std::string &text, const Arguments &arguments) {
  evaluator.chargeBytes(text.size());
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return evaluator.make(
        std::string(strippedText(text, textArgument(arguments, 0, "chars"),
                                 name != "rstrip", name != "lstrip")));
  if (name == "split" || name == "rsplit" || name == "splitlines")
    return splitMethod(evaluator, name, text, arguments);
  if (name == "startswith" || name == "endswith")
    return hasAffix(text, arguments, name == "startswith");
  if (name == "upper")
    return evaluator.make(upperText(text));
  if (name == "lower")
    return evaluator.make(lowerText(text));
  if (name == "capitalize")
    return evaluator.make(capitalizedText(text));
  if (name == "title")
    return evaluator.make(titleText(text, /*words=*/false));
  if (name.starts_with("is"))
    return isAll(name, text);
  if (name == "join") {
    std::string joined;
    const Value *list = arguments.find(0, "iterable");
    bool first = true;
    for (const Value &part : evaluator.elements(list ? *list : Value())) {
      if (!part.is(Kind::String))
        throw TemplateError{
            fmt::format("join needs strings, not a {}", part.typeName())};
      joined += std::exchange(first, false) ? "" : text;
      joined += part.text();
      evaluator.chargeBytes(text.size() + part.text().size());
    }
    return Value(std::move(joined));
  }
  std::string what = textArgument(arguments, 0, "old");
  if (name == "replace") {
    std::string by = textArgument(arguments, 1, "new");
    int64_t count = integerArgument(arguments, 2, "count", -1);
    int64_t times = occurrences(text, what);
    evaluator.chargeBytes(static_cast<size_t>(times) * by.size());
    return evaluator.make(replacedText(text, what, by, count));
  }
  if (name == "find")
    return foundAt(text, text.find(what));
  if (name == "rfind")
    return foundAt(text, text.rfind(what));
  if (name == "index") {
    if (text.find(what) == text.npos)
      throw TemplateError{"index of a substring that was not found"};
    return foundAt(text, text.find(what));
  }
  if (name == "count")
    return occurrences(text, what);
  bool prefix = name == "removeprefix";
  bool has = prefix ? text.starts_with(what) : text.ends_with(what);
  if (!has)
    return evaluator.make(text);
  return evaluator.make(prefix ? text.substr(what.size())
                               : text.substr(0, text.size() - what.size()));
}

Value Evaluator::callMethod(const Function &method,
                            const Arguments &arguments) {
  const Value &self = method.self;
  chargeSteps();
  if (self.is(Kind::String))
    return stringMethod(*this, method.name, self.text(), arguments);
  if (self.isList()) {
    const Value *sought = arguments.find(0, "value");
    int64_t count = 0;
    chargeWalk(self);
    for (size_t i = 0; sought && i < self.list().size(); ++i)
      if (self.list()[i] == *sought) {
        if (method.name == "index")
          return static_cast<int64_t>(i);
        ++count;
      }
    if (method.name == "index")
      throw TemplateError{"index of a value that is not in the list"};
    return count;
  }
  if (method.name == "get") {
    const Value *name = arguments.find(0, "key");
    const Value *found = name && name->is(Kind::String)
                             ? self.dict().find(name->text())
                             : nullptr;
    const Value *otherwise = arguments.find(1, "default");
    return found ? *found : otherwise ? *otherwise : Value::none();
  }
  List list;
  for (const auto &[name, value] : self.dict().members) {
    if (method.name == "values")
      list.push_back(value);
    else if (method.name == "keys")
      list.push_back(make(name));
    else
      list.push_back(make(List{make(name), value}, Kind::Tuple));
  }
  return make(std::move(list));
}

static Value range(Evaluator &evaluator, const Arguments &arguments) {
  static constexpr int64_t maxRange = 100'000; // the bound of Jinja's sandbox
  size_t count = arguments.positional.size();
  if (count == 0 || count > 3 || !arguments.named.empty())
    throw TemplateError{"range needs one to three numbers"};
  int64_t begin = count == 1 ? 0 : integerArgument(arguments, 0, "", 0);
  int64_t end = integerArgument(arguments, count == 1 ? 0 : 1, "", 0);
  int64_t step = integerArgument(arguments, 2, "", 1);
  if (step == 0)
    throw TemplateError{"the step of range must not be 0"};
  List list;
  while (step > 0 ? begin < end : begin > end) {
    if (list.size() == maxRange)
      throw TemplateError{
          fmt::format("a range of more than {} numbers", maxRange)};
    list.push_back(begin);
    if (__builtin_add_overflow(begin, step, &begin))
      break;
  }
  return evaluator.make(std::move(list));
}

Value Evaluator::callGlobal(const std::string &name,
                            const Arguments &arguments) {
  if (name == "range")
    return range(*this, arguments);
  if (name == "raise_exception") {
    const Value *message = arguments.find(0, "message");
    throw TemplateError{"the template refuses: " +
                        (message ? text(*message) : std::string())};
  }
  if (name == "strftime_now") {
    std::string format = textArgument(arguments, 0, "format");
    std::time_t now = options.now != 0 ? options.now : std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    char buffer[512];
    if (format.size() > 100)
      throw TemplateError{"the format of strftime_now is too long"};
    size_t length =
        std::strftime(buffer, sizeof(buffer), format.c_str(), &local);
    return make(std::string(buffer, length));
  }
  // dict and namespace
  auto members = std::make_shared<Dict>();
  if (const Value *from = arguments.find(0, "")) {
    if (!from->is(Kind::Dict))
      throw TemplateError{
          fmt::format("{} of a {} is not supported", name, from->typeName())};
    *members = from->dict();
  }
  for (const auto &[member, value] : arguments.named)
    members->set(member, value);
  chargeBytes(members->members.size() * 64);
  return {std::move(members), name == "dict" ? Kind::Dict : Kind::Namespace};
}

} // namespace tessera::chat
