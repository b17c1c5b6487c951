#include "runtime/infer/chat/ChatTemplate.h"
#include "runtime/infer/chat/Evaluator.h"
#include "runtime/support/Text.h"

namespace tessera::chat {

static constexpr std::string_view jinjaFile = "chat_template.jinja",
                                  configFile = "tokenizer_config.json";
static constexpr size_t maxTemplateBytes = 1 << 20;
static constexpr int64_t maxConfigBytes = 64 << 20;

struct ChatTemplate::Parsed {
  std::string where, source;
  Block block;
  Dict specialTokens; // by their names, such as bos_token
};

ChatTemplate::ChatTemplate() : parsed(std::make_unique<Parsed>()) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate &&) noexcept = default;
ChatTemplate &ChatTemplate::operator=(ChatTemplate &&) noexcept = default;

StatusOr<ChatTemplate> ChatTemplate::parse(std::string_view source,
                                           std::string where) {
  if (source.size() > maxTemplateBytes)
    return Status::error("{}: a chat template of {} bytes is too long; up to "
                         "{} are supported",
                         where, source.size(), maxTemplateBytes);
  if (!isUtf8(source))
    return Status::error("{}: the chat template is not UTF-8", where);
  ChatTemplate result;
  try {
    result.parsed->block = parseTemplate(source);
  } catch (const TemplateError &error) {
    return Status::error("{}: {}", where, oneLine(error.message));
  }
  result.parsed->where = std::move(where);
  result.parsed->source = source;
  return result;
}

std::string_view ChatTemplate::source() const { return parsed->source; }

/// The template called `name` among {"name", "template"} objects.
static const JsonValue &namedTemplate(const JsonValue &list,
                                      std::string_view name) {
  static const JsonValue none;
  for (const JsonValue &entry : list.elements()) {
    std::string_view entryName;
    if (entry["name"].get(entryName) && entryName == name)
      return entry["template"];
  }
  return none;
}

/// Special tokens are strings, or objects with their "content".
static void readSpecialTokens(const JsonValue &config, Dict &tokens) {
  for (const auto &[name, value] : config.members()) {
    std::string_view text;
    if (name.ends_with("_token") &&
        (value.get(text) || value["content"].get(text)))
      tokens.set(name, std::string(text));
  }
}

namespace {
/// A model folder's template and tokenizer config.
struct Found {
  std::string source, where;
  JsonValue config; ///< tokenizer_config.json, null without one
  bool any = false; ///< whether there is a template
};
} // namespace

static Status readConfig(const ModelFiles &files, JsonValue &config) {
  StatusOr<std::string> text = files.read(configFile, maxConfigBytes);
  if (!text.ok())
    return text.status();
  StatusOr<JsonValue> json = JsonValue::parse(*text, files.where(configFile));
  if (!json.ok())
    return json.status();
  config = json.take();
  return Status::success();
}

static StatusOr<Found> find(const ModelFiles &files, std::string_view name) {
  Found found;
  if (files.has(configFile))
    TESSERA_RETURN_IF_ERROR(readConfig(files, found.config));
  if (name == "default" && files.has(jinjaFile)) {
    StatusOr<std::string> text = files.read(jinjaFile, maxTemplateBytes);
    if (!text.ok())
      return text.status();
    found.source = text.take();
    found.where = files.where(jinjaFile);
    found.any = true;
    return found;
  }
  const JsonValue &entry = found.config["chat_template"];
  std::string_view text;
  found.any = entry.isArray() ? namedTemplate(entry, name).get(text)
                              : name == "default" && entry.get(text);
  found.source = text;
  found.where = files.where(configFile);
  return found;
}

StatusOr<bool> ChatTemplate::isIn(const ModelFiles &files) {
  StatusOr<Found> found = find(files, "default");
  if (!found.ok())
    return found.status();
  return found->any;
}

StatusOr<ChatTemplate> ChatTemplate::load(const ModelFiles &files,
                                          std::string_view name) {
  StatusOr<Found> found = find(files, name);
  if (!found.ok())
    return found.status();
  if (!found->any)
    return Status::error("{}: no chat template {}; a model for chats has a "
                         "chat_template.jinja or a \"chat_template\" in its "
                         "tokenizer_config.json",
                         files.place(), quote(name));
  StatusOr<ChatTemplate> result = parse(found->source, std::move(found->where));
  if (result.ok())
    readSpecialTokens(found->config, result->parsed->specialTokens);
  return result;
}

StatusOr<std::string> ChatTemplate::render(const JsonValue &variables,
                                           const RenderOptions &options) const {
  if (!variables.isObject())
    return Status::error("{}: a chat template needs an object of variables",
                         parsed->where);
  try {
    Dict values = parsed->specialTokens;
    for (const auto &[name, value] : variables.members())
      values.set(name, Value::fromJson(value));
    return Evaluator(options).render(parsed->block, values);
  } catch (const TemplateError &error) {
    return Status::error("{}: {}", parsed->where, oneLine(error.message));
  }
}

} // namespace tessera::chat
