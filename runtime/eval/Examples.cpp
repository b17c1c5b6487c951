#include "runtime/eval/Examples.h"
#include "runtime/support/Text.h"

#include <algorithm>

namespace tessera::eval {
namespace {

constexpr int64_t kMaxDataBytes = int64_t(1) << 30;

std::string fieldNames(const Example &example) {
  std::string names;
  for (const auto &member : example.fields.members())
    names += (names.empty() ? "" : ", ") + oneLine(member.name);
  return names.empty() ? "none" : names;
}

StatusOr<const JsonValue *> field(const Example &example,
                                  std::string_view name) {
  const JsonValue &value = example.fields[name];
  if (value.isNull())
    return Status::error("{}: no field {}; the fields are: {}", example.where,
                         quote(name), fieldNames(example));
  return &value;
}

std::optional<std::string> scalarText(const JsonValue &value) {
  std::string_view text;
  if (value.get(text))
    return std::string(text);
  int64_t whole = 0;
  if (value.get(whole))
    return fmt::to_string(whole);
  double number = 0;
  if (value.get(number))
    return fmt::to_string(number);
  bool truth = false;
  if (value.get(truth))
    return truth ? "true" : "false";
  return std::nullopt;
}

} // namespace

StatusOr<std::vector<Example>> loadExamples(const Task &task) {
  auto text = readTextFile(task.data, kMaxDataBytes);
  if (!text.ok())
    return text.status();
  if (!isUtf8(*text))
    return Status::error("{}: is not valid UTF-8", task.data);
  std::vector<Example> examples;
  if (!task.data.ends_with(".jsonl")) {
    if (task.kind != TaskKind::perplexity)
      return Status::error("{}: the data of a {} task must be a .jsonl file",
                           task.data, kTaskKinds[int(task.kind)]);
    if (!task.splitBy.empty())
      return Status::error("{}: split_by needs fields; give a .jsonl file",
                           task.data);
    if (text->empty())
      return Status::error("{}: is empty; the task has no example", task.data);
    JsonValue::Object whole;
    whole.push_back({task.text, JsonValue::string(text.take())});
    examples.push_back({task.data, JsonValue::object(std::move(whole))});
    return examples;
  }
  std::string_view rest = *text;
  for (int64_t number = 1; !rest.empty(); ++number) {
    size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos)
      continue;
    std::string where = fmt::format("{}:{}", task.data, number);
    auto parsed = JsonValue::parse(line, where);
    if (!parsed.ok())
      return parsed.status();
    if (!parsed->isObject())
      return Status::error("{}: a line must be a JSON object", where);
    examples.push_back({where, parsed.take()});
    if (int64_t(examples.size()) == task.limit)
      break;
  }
  if (examples.empty())
    return Status::error("{}: is empty; the task has no example", task.data);
  return examples;
}

StatusOr<std::string> stringField(const Example &example,
                                  std::string_view name) {
  auto value = field(example, name);
  if (!value.ok())
    return value.status();
  if (auto text = scalarText(**value))
    return *text;
  return Status::error("{}: field {} must be a string", example.where,
                       quote(name));
}

StatusOr<std::vector<std::string>> stringsField(const Example &example,
                                                std::string_view name) {
  auto value = field(example, name);
  if (!value.ok())
    return value.status();
  std::vector<std::string> list;
  if (auto text = scalarText(**value))
    list.push_back(*text);
  for (const JsonValue &each : (*value)->elements()) {
    auto text = scalarText(each);
    if (!text)
      return Status::error("{}: field {} must have strings alone",
                           example.where, quote(name));
    list.push_back(*text);
  }
  if (list.empty())
    return Status::error("{}: field {} must be a list of at least one string",
                         example.where, quote(name));
  return list;
}

StatusOr<std::vector<std::size_t>>
rightChoices(const Example &example, const Task &task,
             const std::vector<std::string> &choices) {
  int64_t index = 0;
  if (example.fields[task.answer].get(index)) {
    double number = 0;
    for (const JsonValue &choice : example.fields[task.choices].elements())
      if (choice.get(number))
        return Status::error("{}: the answer {} may be an index or one of the "
                             "choices, which are numbers; write them as "
                             "strings",
                             example.where, index);
    if (index < 0 || index >= int64_t(choices.size()))
      return Status::error("{}: the answer {} is not one of {} choices, which "
                           "count from 0",
                           example.where, index, choices.size());
    return std::vector<std::size_t>{std::size_t(index)};
  }
  auto answers = stringsField(example, task.answer);
  if (!answers.ok())
    return answers.status();
  std::vector<std::size_t> right;
  for (const std::string &answer : *answers) {
    auto found = std::ranges::find(choices, answer);
    if (found == choices.end())
      return Status::error("{}: the answer {} is not one of the choices",
                           example.where, quote(answer));
    right.push_back(std::size_t(found - choices.begin()));
  }
  return right;
}

std::vector<std::string_view> wordsOf(std::string_view pattern) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    if ((c == '{' || c == '}') && pattern.substr(at + 1).starts_with(c)) {
      ++at; // an escaped brace
      continue;
    }
    const size_t end =
        c == '{' ? pattern.find('}', at) : std::string_view::npos;
    if (end == std::string_view::npos)
      continue;
    words.push_back(pattern.substr(at + 1, end - at - 1));
    at = end;
  }
  return words;
}

StatusOr<std::string> fill(std::string_view pattern, const Example &example,
                           std::span<const TemplateWord> words) {
  std::string text;
  for (size_t at = 0; at < pattern.size();) {
    const char c = pattern[at];
    if ((c == '{' || c == '}') && pattern.substr(at + 1).starts_with(c)) {
      text += c;
      at += 2;
      continue;
    }
    if (c != '{') {
      text += c;
      ++at;
      continue;
    }
    size_t end = pattern.find('}', at);
    if (end == std::string_view::npos)
      return Status::error(
          "the prompt {} has a '{{' without '}}'; write '{{{{' "
          "for a brace",
          quote(pattern));
    const std::string_view name = pattern.substr(at + 1, end - at - 1);
    if (auto word = std::ranges::find(words, name, &TemplateWord::name);
        word != words.end()) {
      text += word->text;
    } else {
      auto value = stringField(example, name);
      if (!value.ok())
        return value.status();
      text += *value;
    }
    at = end + 1;
  }
  return text;
}

} // namespace tessera::eval
