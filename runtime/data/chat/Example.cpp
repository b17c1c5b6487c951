#include "runtime/data/chat/Example.h"
#include "runtime/data/ShallowJson.h"

#include <algorithm>
#include <set>

namespace tessera::chat {

namespace {
/// Reads the members of one line's object; errors begin with `where`.
class ExampleParser {
public:
  ExampleParser(const JsonValue &root, const std::string &where, ExampleUse use)
      : root(root), where(where), use(use) {}

  StatusOr<Example> parse();
  /// Of a line that is only a prompt.
  StatusOr<Example> parsePrompt();

private:
  bool has(std::string_view name) const { return !root[name].isNull(); }
  template <typename... Args>
  Status error(fmt::format_string<Args...> format, Args &&...args) const {
    return Status::error("{}: {}", where,
                         fmt::format(format, std::forward<Args>(args)...));
  }
  Status checkNames(const JsonValue &object, std::string_view what) const;
  Status setUp(Example &example) const;
  Status addTools(Example &example) const;
  Status addPrompt(Example &example) const;
  Status addAnswer(Example &example, std::string_view name,
                   DocumentKind kind) const;
  Status addMessages(const JsonValue &list, std::string_view name,
                     JsonValue::Array &out) const;
  Status addMessage(const JsonValue &message, const std::string &name,
                    JsonValue::Array &out) const;
  StatusOr<JsonValue> withParsedCalls(const JsonValue &message,
                                      const std::string &name) const;
  StatusOr<JsonValue> withParsedArguments(const JsonValue &function,
                                          const std::string &name) const;
  Status findCommonPrompt(Example &example) const;
  Status checkAnswers(const Example &example) const;

  const JsonValue &root;
  const std::string &where;
  const ExampleUse use;
};
} // namespace

/// Equal values, with members in the same order.
static bool isSame(const JsonValue &left, const JsonValue &right) {
  if (left.isArray() || left.isObject()) {
    const auto &a = left.elements(), &b = right.elements();
    const auto &m = left.members(), &n = right.members();
    return left.isArray() == right.isArray() &&
           left.isObject() == right.isObject() &&
           std::equal(a.begin(), a.end(), b.begin(), b.end(), isSame) &&
           std::equal(
               m.begin(), m.end(), n.begin(), n.end(),
               [](const JsonValue::Member &x, const JsonValue::Member &y) {
                 return x.name == y.name && isSame(x.value, y.value);
               });
  }
  return left.isSameScalar(right);
}

Status ExampleParser::checkNames(const JsonValue &object,
                                 std::string_view what) const {
  std::set<std::string_view> names;
  for (const JsonValue::Member &member : object.members())
    if (!names.insert(member.name).second)
      return error("{} has the name {} twice", what, shownName(member.name));
  return Status::success();
}

/// A function whose "arguments", a string in OpenAI's form, are JSON: templates
/// print objects, and the server gives them objects, too.
StatusOr<JsonValue>
ExampleParser::withParsedArguments(const JsonValue &function,
                                   const std::string &name) const {
  JsonValue::Object members = function.members();
  for (JsonValue::Member &member : members) {
    std::string_view text;
    if (member.name != "arguments" || !member.value.get(text))
      continue;
    StatusOr<JsonValue> parsed = JsonValue::parse(text, "");
    if (!parsed.ok() || !parsed->isObject())
      return error("{}: the arguments of a tool call must be a JSON object, or "
                   "one as a string",
                   name);
    member.value = parsed.take();
  }
  return JsonValue::object(std::move(members));
}

StatusOr<JsonValue>
ExampleParser::withParsedCalls(const JsonValue &message,
                               const std::string &name) const {
  JsonValue::Object members = message.members();
  for (JsonValue::Member &member : members) {
    if (member.name != "tool_calls" || member.value.isNull())
      continue;
    if (!member.value.isArray())
      return error("{}: \"tool_calls\" must be a list", name);
    JsonValue::Array calls;
    for (const JsonValue &call : member.value.elements()) {
      if (!call.isObject())
        return error("{}: a tool call must be an object", name);
      JsonValue::Object parts = call.members();
      for (JsonValue::Member &part : parts) {
        if (part.name != "function" || !part.value.isObject())
          continue;
        StatusOr<JsonValue> function = withParsedArguments(part.value, name);
        if (!function.ok())
          return function;
        part.value = function.take();
      }
      calls.push_back(JsonValue::object(std::move(parts)));
    }
    member.value = JsonValue::array(std::move(calls));
  }
  return JsonValue::object(std::move(members));
}

Status ExampleParser::addMessage(const JsonValue &message,
                                 const std::string &name,
                                 JsonValue::Array &out) const {
  std::string_view text;
  if (!message.isObject() || !message["role"].get(text) || text.empty())
    return error("{} must be an object with a string \"role\"", name);
  TESSERA_RETURN_IF_ERROR(checkNames(message, name));
  const JsonValue &content = message["content"];
  if (!content.isNull() && !content.isArray() && !content.get(text))
    return error("{}: \"content\" must be a string or a list of parts", name);
  if (content.isNull() && message["tool_calls"].elements().empty())
    return error("{} has no \"content\"", name); // templates print "None"
  for (const JsonValue &part : content.elements())
    if (!part["type"].get(text) || text != "text" || !part["text"].get(text))
      return error("{}: parts of \"content\" must be "
                   "{{\"type\": \"text\", \"text\": \"…\"}}; images and sound "
                   "are not supported",
                   name);
  StatusOr<JsonValue> whole = withParsedCalls(message, name);
  if (!whole.ok())
    return whole.status();
  out.push_back(whole.take());
  return Status::success();
}

Status ExampleParser::addMessages(const JsonValue &list, std::string_view name,
                                  JsonValue::Array &out) const {
  if (!list.isArray() || list.elements().empty())
    return error("\"{}\" must be a list of messages that is not empty", name);
  if (list.elements().size() > maxMessages)
    return error("\"{}\" has {} messages; up to {} are supported", name,
                 list.elements().size(), maxMessages);
  for (const JsonValue &message : list.elements())
    TESSERA_RETURN_IF_ERROR(
        addMessage(message, fmt::format("{}[{}]", name, out.size()), out));
  return Status::success();
}

Status ExampleParser::addTools(Example &example) const {
  example.tools = root["tools"];
  if (std::string_view text; example.tools.get(text)) {
    StatusOr<JsonValue> parsed = JsonValue::parse(text, where + ": \"tools\"");
    if (!parsed.ok())
      return parsed.status();
    example.tools = parsed.take();
  }
  if (!example.tools.isNull() && !example.tools.isArray())
    return error("\"tools\" must be a list");
  example.variables = root["chat_template_kwargs"];
  if (!example.variables.isNull() && !example.variables.isObject())
    return error("\"chat_template_kwargs\" must be an object");
  for (const char *own :
       {"messages", "tools", "documents", "add_generation_prompt"})
    if (!example.variables[own].isNull())
      return error("\"chat_template_kwargs\" must not have \"{}\"", own);
  return checkNames(example.variables, "\"chat_template_kwargs\"");
}

Status ExampleParser::addPrompt(Example &example) const {
  std::string_view text;
  if (root["prompt"].get(text)) {
    example.promptText = text;
    return Status::success();
  }
  return addMessages(root["prompt"], "prompt", example.prompt);
}

Status ExampleParser::addAnswer(Example &example, std::string_view name,
                                DocumentKind kind) const {
  Answer answer;
  answer.kind = kind;
  std::string_view text;
  if (!example.isConversation && !root[name].get(text))
    return error("\"{}\" must be a string, as \"prompt\" is", name);
  if (!example.isConversation && text.empty() && use == ExampleUse::Learn)
    return error("\"{}\" is empty", name);
  answer.text = text;
  if (example.isConversation)
    TESSERA_RETURN_IF_ERROR(addMessages(root[name], name, answer.messages));
  example.answers.push_back(std::move(answer));
  return Status::success();
}

/// Moves the messages that both answers begin with to the prompt; the last one
/// of an answer is its own.
Status ExampleParser::findCommonPrompt(Example &example) const {
  auto &chosen = example.answers[0].messages;
  auto &rejected = example.answers[1].messages;
  auto same = std::mismatch(chosen.begin(), chosen.end() - 1, rejected.begin(),
                            rejected.end() - 1, isSame);
  if (same.first == chosen.begin())
    return error("\"chosen\" and \"rejected\" have no message in common; give "
                 "the prompt as \"prompt\"");
  example.prompt.assign(chosen.begin(), same.first);
  chosen.erase(chosen.begin(), same.first);
  rejected.erase(rejected.begin(), same.second);
  return Status::success();
}

Status ExampleParser::checkAnswers(const Example &example) const {
  if (example.answers.size() < 2 || use == ExampleUse::Score)
    return Status::success();
  const Answer &a = example.answers[0], &b = example.answers[1];
  if (a.text == b.text &&
      std::equal(a.messages.begin(), a.messages.end(), b.messages.begin(),
                 b.messages.end(), isSame))
    return error("\"chosen\" and \"rejected\" are equal, so that nothing can "
                 "be learned from the pair");
  return Status::success();
}

/// Which of the forms the line has.
Status ExampleParser::setUp(Example &example) const {
  if (has("messages"))
    return addAnswer(example, "messages", DocumentKind::Plain);
  std::string_view text;
  example.isConversation =
      has("prompt") ? !root["prompt"].get(text) : !root["chosen"].get(text);
  const bool isPair = has("chosen") && has("rejected");
  if (has("prompt"))
    TESSERA_RETURN_IF_ERROR(addPrompt(example));
  else if (!isPair || !example.isConversation)
    return error("must have \"messages\", or \"prompt\" with \"completion\" "
                 "or with \"chosen\" and \"rejected\"");
  if (isPair) {
    example.objective = PackedObjective::Preference;
    TESSERA_RETURN_IF_ERROR(addAnswer(example, "chosen", DocumentKind::Chosen));
    TESSERA_RETURN_IF_ERROR(
        addAnswer(example, "rejected", DocumentKind::Rejected));
    if (!has("prompt"))
      TESSERA_RETURN_IF_ERROR(findCommonPrompt(example));
    return checkAnswers(example);
  }
  if (!has("completion"))
    return error("has a \"prompt\", but neither \"completion\" nor both "
                 "\"chosen\" and \"rejected\"");
  DocumentKind kind = DocumentKind::Plain;
  if (bool label = false; root["label"].get(label)) {
    example.objective = PackedObjective::Label;
    kind = label ? DocumentKind::Desirable : DocumentKind::Undesirable;
  } else if (has("label")) {
    return error("\"label\" must be true or false");
  }
  return addAnswer(example, "completion", kind);
}

StatusOr<Example> ExampleParser::parse() {
  if (!root.isObject())
    return error("must be a JSON object");
  TESSERA_RETURN_IF_ERROR(checkNames(root, "the line"));
  Example example;
  TESSERA_RETURN_IF_ERROR(setUp(example));
  TESSERA_RETURN_IF_ERROR(addTools(example));
  return example;
}

StatusOr<Example> ExampleParser::parsePrompt() {
  if (!root.isObject())
    return error("must be a JSON object");
  TESSERA_RETURN_IF_ERROR(checkNames(root, "the line"));
  Example example;
  example.isConversation = has("messages");
  if (example.isConversation)
    TESSERA_RETURN_IF_ERROR(
        addMessages(root["messages"], "messages", example.prompt));
  else if (std::string_view text; root["prompt"].get(text))
    example.promptText = text;
  else
    return error("must have \"prompt\", a string, or \"messages\"");
  TESSERA_RETURN_IF_ERROR(addTools(example));
  return example;
}

static StatusOr<JsonValue> parseLine(std::string_view line,
                                     const std::string &where) {
  if (line.size() > maxLineBytes)
    return Status::error("{}: a line of {} bytes is too long; up to {} are "
                         "supported",
                         where, line.size(), maxLineBytes);
  return JsonValue::parse(line, where);
}

StatusOr<Example> parseExample(std::string_view line, const std::string &where,
                               ExampleUse use) {
  StatusOr<JsonValue> root = parseLine(line, where);
  if (!root.ok())
    return root.status();
  return ExampleParser(*root, where, use).parse();
}

JsonValue assistantMessage(std::string content) {
  return JsonValue::object(
      {{"role", JsonValue::string("assistant")},
       {"content", JsonValue::string(std::move(content))}});
}

StatusOr<Example> answeredPrompt(std::string_view line,
                                 std::string_view completion, bool isCut,
                                 const std::string &where) {
  StatusOr<JsonValue> root = parseLine(line, where);
  if (!root.ok())
    return root.status();
  StatusOr<Example> example =
      ExampleParser(*root, where, ExampleUse::Score).parsePrompt();
  if (!example.ok())
    return example;
  Answer answer;
  answer.isCut = isCut;
  answer.isSampled = true;
  answer.text = completion;
  if (example->isConversation)
    answer.messages.push_back(assistantMessage(std::string(completion)));
  example->answers.push_back(std::move(answer));
  return example;
}

} // namespace tessera::chat
