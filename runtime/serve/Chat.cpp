#include "runtime/serve/Chat.h"

#include <algorithm>

namespace tessera::serve {
namespace {

class ChatMl final : public ChatRenderer {
public:
  StatusOr<std::vector<PromptPart>>
  render(std::span<const ChatMessage> messages, std::span<const Tool> /*tools*/,
         const TemplateSettings &settings) const override {
    std::vector<PromptPart> parts;
    for (const ChatMessage &message : messages) {
      parts.push_back({"<|im_start|>" + message.role + "\n"});
      parts.push_back({message.content, /*isUsers=*/true});
      parts.push_back({"<|im_end|>\n"});
    }
    if (settings.opensAnswer)
      parts.push_back({"<|im_start|>assistant\n"});
    return parts;
  }
  std::vector<std::string> stops() const override { return {"<|im_end|>"}; }
};

} // namespace

Status ChatRenderer::checkVariables(std::string_view /*json*/) const {
  return Status::error("chat_template_kwargs sets variables of a chat "
                       "template, which this model lacks; leave it out");
}

StatusOr<std::vector<int32_t>> partTokens(std::span<const PromptPart> parts,
                                          const tokenizer::Tokenizer &tokenizer,
                                          tokenizer::Encoder &encoder) {
  std::vector<uint32_t> ids;
  for (const PromptPart &part : parts) {
    size_t begin = ids.size();
    encoder.encode(part.text,
                   part.isUsers ? tokenizer::SpecialText::Plain
                                : tokenizer::SpecialText::Parse,
                   ids);
    // Some models list special tokens among their ordinary ones.
    if (part.isUsers &&
        std::any_of(ids.begin() + long(begin), ids.end(),
                    [&](uint32_t id) { return tokenizer.token(id).special; }))
      return Status::error("a message has the text of a special token, which "
                           "this model's tokenizer cannot tell from the token; "
                           "remove it");
  }
  return std::vector<int32_t>(ids.begin(), ids.end());
}

StatusOr<std::vector<int32_t>>
chatTokens(const ChatRenderer &chat, std::span<const ChatMessage> messages,
           std::span<const Tool> tools, const tokenizer::Tokenizer &tokenizer,
           tokenizer::Encoder &encoder, const TemplateSettings &settings) {
  auto parts = chat.render(messages, tools, settings);
  if (!parts.ok())
    return parts.status();
  return partTokens(*parts, tokenizer, encoder);
}

void addChatStops(const ChatRenderer &chat,
                  const tokenizer::Tokenizer &tokenizer,
                  std::vector<int32_t> &tokens,
                  std::vector<std::string> &strings) {
  for (const std::string &stop : chat.stops()) {
    if (auto token = tokenizer.addedToken(stop))
      tokens.push_back(int32_t(*token));
    else
      strings.push_back(stop);
  }
}

const ChatRenderer &chatMl() {
  static const ChatMl chatMl;
  return chatMl;
}

} // namespace tessera::serve
