#include "runtime/serve/ModelChat.h"
#include "runtime/infer/chat/ChatTemplate.h"

#include <mutex>

#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

// Around what a user wrote where it has the text of a special token, so that it
// is found again in what the template makes of it. Noncharacters of Unicode,
// which no text that is interchanged has.
constexpr std::string_view kBegin = "\uFDD0", kEnd = "\uFDD1";

bool hasMark(std::string_view text) {
  return text.find(kBegin) != text.npos || text.find(kEnd) != text.npos;
}

class ModelChat final : public ChatTemplate {
public:
  ModelChat(chat::ChatTemplate source, const tokenizer::Tokenizer &tokenizer)
      : source(std::move(source)), encoder(tokenizer) {}

  StatusOr<std::vector<PromptPart>>
  render(std::span<const ChatMessage> messages) const override {
    nlohmann::json variables = {{"add_generation_prompt", true}};
    nlohmann::json &list = variables["messages"] = nlohmann::json::array();
    for (const ChatMessage &message : messages) {
      if (hasMark(message.content))
        return Status::error("a message has the noncharacter U+FDD0 or U+FDD1, "
                             "which no text has; remove it");
      list.push_back({{"role", message.role}, {"content", marked(message)}});
    }
    auto parsed = JsonValue::parse(variables.dump(), "messages");
    if (!parsed.ok())
      return parsed.status();
    StatusOr<std::string> text = source.render(*parsed);
    if (!text.ok())
      return text.status();
    return split(*text);
  }

  // What ends a text of the model is among its tokens.
  std::vector<std::string> stops() const override { return {}; }

private:
  /// The content, between marks if parsing would find a special token in it.
  std::string marked(const ChatMessage &message) const {
    std::lock_guard lock(mutex);
    bool special =
        encoder.encode(message.content) !=
        encoder.encode(message.content, tokenizer::SpecialText::Plain);
    return special ? std::string(kBegin) + message.content + std::string(kEnd)
                   : message.content;
  }

  // Marks that do not stand in pairs say that the template cut a text apart,
  // and then nobody knows which part is whose.
  static StatusOr<std::vector<PromptPart>> split(std::string_view text) {
    std::vector<PromptPart> parts;
    while (!text.empty()) {
      size_t begin = text.find(kBegin);
      std::string_view own = text.substr(0, begin);
      if (!own.empty())
        parts.push_back({std::string(own)});
      text.remove_prefix(own.size());
      if (text.empty() && !hasMark(own))
        break;
      size_t end = text.find(kEnd);
      if (hasMark(own) || end == text.npos)
        return Status::error("a message has the text of a special token where "
                             "the model's template rewrites it; remove it");
      std::string_view users = text.substr(kBegin.size(), end - kBegin.size());
      if (hasMark(users))
        return Status::error("a message has the text of a special token where "
                             "the model's template nests it; remove it");
      parts.push_back({std::string(users), /*isUsers=*/true});
      text.remove_prefix(end + kEnd.size());
    }
    return parts;
  }

  chat::ChatTemplate source;
  mutable std::mutex mutex; ///< of the encoder, which has working memory
  mutable tokenizer::Encoder encoder;
};

/// Of a model that was trained on no chats.
class NoChat final : public ChatTemplate {
public:
  StatusOr<std::vector<PromptPart>>
  render(std::span<const ChatMessage> /*messages*/) const override {
    return Status::error("the model has no chat template; use "
                         "/v1/completions");
  }
  std::vector<std::string> stops() const override { return {}; }
};

} // namespace

StatusOr<std::unique_ptr<ChatTemplate>>
parseModelChat(std::string_view source, std::string where,
               const tokenizer::Tokenizer &tokenizer) {
  auto parsed = chat::ChatTemplate::parse(source, std::move(where));
  if (!parsed.ok())
    return parsed.status();
  return std::unique_ptr<ChatTemplate>(
      std::make_unique<ModelChat>(parsed.take(), tokenizer));
}

StatusOr<std::unique_ptr<ChatTemplate>>
loadModelChat(const std::string &folder, const tokenizer::Tokenizer &tokenizer,
              std::string &note) {
  auto has = chat::ChatTemplate::isIn(folder);
  if (!has.ok())
    return has.status();
  if (!*has) {
    note = folder + " has no chat template: chats are refused";
    return std::unique_ptr<ChatTemplate>(std::make_unique<NoChat>());
  }
  auto loaded = chat::ChatTemplate::load(folder);
  if (!loaded.ok())
    return loaded.status();
  return std::unique_ptr<ChatTemplate>(
      std::make_unique<ModelChat>(loaded.take(), tokenizer));
}

} // namespace tessera::serve
