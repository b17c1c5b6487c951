#include "runtime/serve/ModelChat.h"
#include "runtime/data/tokenizer/Unicode.h"
#include "runtime/infer/chat/ChatTemplate.h"
#include "runtime/serve/Channels.h"

#include <algorithm>
#include <functional>
#include <mutex>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

// Marks around content of the user that contains the text of a special token,
// to find it again in the rendered prompt. They are noncharacters of Unicode,
// which no interchanged text has.
constexpr std::string_view kBegin = "\uFDD0", kEnd = "\uFDD1";

bool hasMark(std::string_view text) {
  return text.find(kBegin) != text.npos || text.find(kEnd) != text.npos;
}

bool isUtf8(const std::string &text) {
  std::string valid;
  tokenizer::appendValidUtf8(text, /*final=*/true, valid);
  return valid == text;
}

/// Whether the text has a mark as JSON and Python escape it in ASCII.
bool hasEscapedMark(std::string_view text) {
  for (std::string_view mark : {"\\ufdd0", "\\ufdd1", "\\uFDD0", "\\uFDD1"})
    if (text.find(mark) != text.npos)
      return true;
  return false;
}

class ModelChat final : public ChatRenderer {
public:
  ModelChat(chat::ChatTemplate source, const tokenizer::Tokenizer &tokenizer)
      : source(std::move(source)), tokenizer(tokenizer), encoder(tokenizer),
        isHarmony(serve::hasChannels(this->source.source())) {}

  const ToolFormat *toolFormat() const override {
    return isHarmony ? nullptr : toolFormatOf(source.source());
  }
  const ReasoningTags *reasoningTags() const override {
    return isHarmony ? nullptr : reasoningTagsOf(source.source());
  }
  bool mayRead(std::string_view variable) const override {
    return source.source().find(variable) != std::string_view::npos;
  }
  bool hasChannels() const override { return isHarmony; }
  bool hasTools() const override {
    return toolFormat() || (isHarmony && source.source().find("tools") !=
                                             std::string_view::npos);
  }

  StatusOr<std::vector<PromptPart>>
  render(std::span<const ChatMessage> messages, std::span<const Tool> tools,
         const TemplateSettings &settings) const override {
    for (const ChatMessage &message : messages)
      if (hasMark(message.content) || hasMark(message.reasoning))
        return Status::error("a message has the noncharacter U+FDD0 or U+FDD1; "
                             "remove it");
    TESSERA_RETURN_IF_ERROR(checkTools(messages, tools));
    auto hasSeveral = [](const ChatMessage &each) {
      return each.calls.size() > 1;
    };
    if (isHarmony && std::ranges::any_of(messages, hasSeveral))
      return Status::error("this model's template shows one call of a message; "
                           "give each call a message of its own");
    Rendered request{messages, tools, settings};
    auto text = renderWith(request, [&](const std::string &content) {
      return isSuspect(content) ? fmt::format("{}{}{}", kBegin, content, kEnd)
                                : content;
    });
    if (!text.ok())
      return text.status();
    auto parts = split(*text);
    if (!parts.ok())
      return parts;
    // A template may rewrite content so that it becomes a special token.
    auto neutral = renderWith(request, [](const std::string &content) {
      return std::string(content.empty() ? "" : "x");
    });
    if (neutral.ok() && countSpecial(*parts) > countSpecial({{*neutral}}))
      return Status::error(
          "the model's template turns a part of a message into a "
          "special token; change it");
    return parts;
  }

  Status checkVariables(std::string_view json) const override {
    return hasOnlyPlain(nlohmann::json::parse(json))
               ? Status::success()
               : Status::error("chat_template_kwargs has the text of a special "
                               "token; change it");
  }

  // Models' end tokens are given as tokens; that of a call may be missing.
  std::vector<std::string> stops() const override {
    std::vector<std::string> list;
    if (isHarmony)
      list.assign(channelStops().begin(), channelStops().end());
    return list;
  }

private:
  /// Input of the template.
  struct Rendered {
    std::span<const ChatMessage> messages;
    std::span<const Tool> tools;
    const TemplateSettings &settings;
  };

  /// Whether a string may be mixed with the template's own text.
  bool isPlain(const std::string &text) const {
    return !hasMark(text) && !hasEscapedMark(text) && !isSuspect(text);
  }

  /// Checks names and strings at any depth, since a template may print each.
  bool hasOnlyPlain(const nlohmann::json &value) const {
    if (value.is_string())
      return isPlain(value.get_ref<const std::string &>());
    for (const auto &[name, member] : value.items())
      if (value.is_structured() &&
          ((value.is_object() && !isPlain(name)) || !hasOnlyPlain(member)))
        return false;
    return true;
  }

  /// Tools and calls are printed unmarked.
  Status checkTools(std::span<const ChatMessage> messages,
                    std::span<const Tool> tools) const {
    bool good = std::ranges::all_of(
        tools, [&](const Tool &tool) { return isPlain(tool.json); });
    for (const ChatMessage &message : messages) {
      good = good && isPlain(message.callId);
      for (const ToolCall &call : message.calls)
        good = good && isPlain(call.id) && isPlain(call.name) &&
               isPlain(call.arguments);
    }
    if (good)
      return Status::success();
    return Status::error("a tool or a call has the text of a special token; "
                         "change it");
  }

  static nlohmann::ordered_json callsJson(const ChatMessage &message) {
    using Json = nlohmann::ordered_json;
    Json list = Json::array();
    for (const ToolCall &call : message.calls)
      list.push_back({{"id", call.id},
                      {"type", "function"},
                      {"function",
                       {{"name", call.name},
                        {"arguments", Json::parse(call.arguments)}}}});
    return list;
  }

  // The template of gpt-oss searches content, and refuses content next to
  // thinking in a message with a call.
  static void
  addThinking(const ChatMessage &message,
              const std::function<std::string(const std::string &)> &content,
              nlohmann::ordered_json &to) {
    std::string thinking = message.reasoning;
    if (!message.calls.empty() && !thinking.empty() &&
        !message.content.empty()) {
      thinking += "\n" + message.content;
      to["content"] = "";
    }
    if (!thinking.empty())
      to["thinking"] = content(thinking);
  }

  StatusOr<std::string> renderWith(
      const Rendered &request,
      const std::function<std::string(const std::string &)> &content) const {
    using Json = nlohmann::ordered_json;
    const TemplateSettings &settings = request.settings;
    Json variables = settings.variables.empty()
                         ? Json::object()
                         : Json::parse(settings.variables);
    variables["add_generation_prompt"] = settings.opensAnswer;
    for (const Tool &tool : request.tools)
      variables["tools"].push_back(Json::parse(tool.json));
    Json &list = variables["messages"] = Json::array();
    for (const ChatMessage &message : request.messages) {
      if (!isUtf8(message.content) || !isUtf8(message.reasoning))
        return Status::error("a message is not UTF-8");
      list.push_back(
          {{"role", message.role}, {"content", content(message.content)}});
      if (isHarmony && message.role == "assistant")
        addThinking(message, content, list.back());
      else if (!message.hasContent)
        list.back()["content"] = nullptr;
      if (!message.reasoning.empty())
        list.back()["reasoning_content"] = content(message.reasoning);
      if (!message.calls.empty())
        list.back()["tool_calls"] = callsJson(message);
      if (!message.callId.empty())
        list.back()["tool_call_id"] = message.callId;
    }
    auto parsed = JsonValue::parse(variables.dump(), "messages");
    if (!parsed.ok())
      return parsed.status();
    return source.render(*parsed);
  }

  bool isSpecial(uint32_t id) const { return tokenizer.token(id).special; }

  bool isSuspect(const std::string &content) const {
    std::lock_guard lock(mutex);
    return std::ranges::any_of(encoder.encode(content),
                               [&](uint32_t id) { return isSpecial(id); });
  }

  /// Counts special tokens outside of content of the user.
  std::ptrdiff_t countSpecial(const std::vector<PromptPart> &parts) const {
    std::lock_guard lock(mutex);
    std::ptrdiff_t count = 0;
    for (const PromptPart &part : parts)
      if (!part.isUsers)
        count +=
            std::ranges::count_if(encoder.encode(part.text),
                                  [&](uint32_t id) { return isSpecial(id); });
    return count;
  }

  // If marks are unpaired or escaped, the template has split or rewritten the
  // content, and its parts cannot be attributed.
  static StatusOr<std::vector<PromptPart>> split(std::string_view text) {
    std::vector<PromptPart> parts;
    auto refused = [] {
      return Status::error("a message has the text of a special token where "
                           "the model's template rewrites it; remove it");
    };
    while (!text.empty()) {
      std::string_view own = text.substr(0, text.find(kBegin));
      if (hasMark(own) || hasEscapedMark(own))
        return refused();
      if (!own.empty())
        parts.push_back({std::string(own)});
      text.remove_prefix(own.size());
      if (text.empty())
        break;
      text.remove_prefix(kBegin.size());
      size_t end = text.find(kEnd);
      if (end == text.npos || hasMark(text.substr(0, end)))
        return refused();
      parts.push_back({std::string(text.substr(0, end)), /*isUsers=*/true});
      text.remove_prefix(end + kEnd.size());
    }
    return parts;
  }

  chat::ChatTemplate source;
  const tokenizer::Tokenizer &tokenizer;
  mutable std::mutex mutex; ///< guards the encoder, which has working memory
  mutable tokenizer::Encoder encoder;
  const bool isHarmony;
};

/// For a model that was not trained on chats.
class NoChat final : public ChatRenderer {
public:
  StatusOr<std::vector<PromptPart>>
  render(std::span<const ChatMessage> /*messages*/,
         std::span<const Tool> /*tools*/,
         const TemplateSettings & /*settings*/) const override {
    return Status::error("the model has no chat template; use "
                         "/v1/completions");
  }
  std::vector<std::string> stops() const override { return {}; }
};

} // namespace

StatusOr<std::unique_ptr<ChatRenderer>>
parseModelChat(std::string_view source, std::string where,
               const tokenizer::Tokenizer &tokenizer) {
  auto parsed = chat::ChatTemplate::parse(source, std::move(where));
  if (!parsed.ok())
    return parsed.status();
  return std::unique_ptr<ChatRenderer>(
      std::make_unique<ModelChat>(parsed.take(), tokenizer));
}

StatusOr<std::unique_ptr<ChatRenderer>>
loadModelChat(const ModelFiles &files, const tokenizer::Tokenizer &tokenizer,
              std::string &note) {
  auto has = chat::ChatTemplate::isIn(files);
  if (!has.ok())
    return has.status();
  if (!*has) {
    note = files.place() + " has no chat template: chats are rejected";
    return std::unique_ptr<ChatRenderer>(std::make_unique<NoChat>());
  }
  auto loaded = chat::ChatTemplate::load(files);
  if (!loaded.ok())
    return loaded.status();
  return std::unique_ptr<ChatRenderer>(
      std::make_unique<ModelChat>(loaded.take(), tokenizer));
}

} // namespace tessera::serve
