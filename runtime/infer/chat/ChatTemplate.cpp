#include "runtime/infer/chat/ChatTemplate.h"
#include "runtime/infer/chat/Evaluator.h"
#include "runtime/support/Text.h"

#include <algorithm>

namespace tessera::chat {

static constexpr std::string_view jinjaFile = "chat_template.jinja",
                                  configFile = "tokenizer_config.json";
static constexpr size_t maxTemplateBytes = 1 << 20;
static constexpr int64_t maxConfigBytes = 64 << 20;

struct ChatTemplate::Parsed {
  std::string where, source;
  Block block;
  Dict specialTokens; // by their names, such as bos_token

  /// Generation blocks are added to `spans` unless it is null.
  StatusOr<RenderedText> render(const JsonValue &variables,
                                const RenderOptions &options,
                                std::vector<TextSpan> *spans) const;
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

StatusOr<ChatTemplate> ChatTemplate::loadFile(const std::string &path,
                                              const ModelFiles &files) {
  StatusOr<std::string> text = readTextFile(path, maxTemplateBytes);
  if (!text.ok())
    return text.status();
  JsonValue config;
  if (files.has(configFile))
    TESSERA_RETURN_IF_ERROR(readConfig(files, config));
  StatusOr<ChatTemplate> result = parse(*text, path);
  if (result.ok())
    readSpecialTokens(config, result->parsed->specialTokens);
  return result;
}

static bool hasGeneration(const Block &block) {
  return std::any_of(block.begin(), block.end(), [](const Statement &each) {
    return each.kind == Statement::Kind::Group || hasGeneration(each.body) ||
           hasGeneration(each.otherwise);
  });
}

bool ChatTemplate::marksGeneration() const {
  return hasGeneration(parsed->block);
}

StatusOr<std::string> ChatTemplate::render(const JsonValue &variables,
                                           const RenderOptions &options) const {
  StatusOr<RenderedText> rendered = parsed->render(variables, options, nullptr);
  if (!rendered.ok())
    return rendered.status();
  return std::move(rendered->text);
}

StatusOr<RenderedText>
ChatTemplate::renderMarked(const JsonValue &variables,
                           const RenderOptions &options) const {
  std::vector<TextSpan> spans;
  StatusOr<RenderedText> rendered = parsed->render(variables, options, &spans);
  if (rendered.ok())
    rendered->generated = std::move(spans);
  return rendered;
}

StatusOr<RenderedText>
ChatTemplate::Parsed::render(const JsonValue &variables,
                             const RenderOptions &options,
                             std::vector<TextSpan> *spans) const {
  if (!variables.isObject())
    return Status::error("{}: a chat template needs an object of variables",
                         where);
  try {
    Dict values = specialTokens;
    for (const auto &[name, value] : variables.members())
      values.set(name, Value::fromJson(value));
    Evaluator evaluator(options);
    evaluator.markInto(spans);
    return RenderedText{evaluator.render(block, values), {}};
  } catch (const TemplateError &error) {
    return Status::error("{}: {}", where, oneLine(error.message, 200));
  }
}

} // namespace tessera::chat
