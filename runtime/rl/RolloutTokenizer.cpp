#include "runtime/rl/RolloutTokenizer.h"
#include "runtime/generate/ModelDirectory.h"

namespace tessera::rl {

Status RolloutTokenizer::read(const ModelFiles &files) {
  auto opened = tokenizer::Tokenizer::of(files);
  if (!opened.ok())
    return opened.status();
  tokenizer.emplace(opened.take());
  encoder.emplace(*tokenizer);
  auto config = loadGenerationConfig(files);
  if (!config.ok())
    return config.status();
  auto ending = endTokensOf(files, *config);
  if (!ending.ok())
    return ending.status();
  ends = ending.take();
  if (auto end = tokenizer->documentEnd(); end && ends.empty())
    ends = {int32_t(*end)};
  std::string message; // of a model without a template
  auto loaded = serve::loadModelChat(files, *tokenizer, message);
  if (!loaded.ok())
    return loaded.status();
  if (message.empty())
    chat = loaded.take();
  return Status::success();
}

StatusOr<std::vector<int32_t>>
RolloutTokenizer::encodeText(std::string_view text) {
  std::vector<int32_t> tokens(tokenizer->framePrefix().begin(),
                              tokenizer->framePrefix().end());
  for (uint32_t token : encoder->encode(text))
    tokens.push_back(int32_t(token));
  return tokens;
}

StatusOr<std::vector<int32_t>>
RolloutTokenizer::encodeMessages(const JsonValue &messages) {
  std::vector<serve::ChatMessage> list;
  for (const JsonValue &each : messages.elements()) {
    std::string_view role, content;
    if (!each["role"].get(role) || !each["content"].get(content))
      return Status::error("'messages' must be a list of objects with 'role' "
                           "and 'content', which are strings");
    list.push_back(
        {.role = std::string(role), .content = std::string(content)});
  }
  if (list.empty())
    return Status::error("'messages' must be a list of at least one message");
  return serve::chatTokens(*chat, list, {}, *tokenizer, *encoder);
}

PromptEncoder RolloutTokenizer::promptEncoder() {
  PromptEncoder result;
  result.text = [this](std::string_view text) { return encodeText(text); };
  if (chat)
    result.messages = [this](const JsonValue &messages) {
      return encodeMessages(messages);
    };
  return result;
}

std::string RolloutTokenizer::decode(std::span<const int32_t> tokens) const {
  const std::vector<uint32_t> ids(tokens.begin(), tokens.end());
  return tokenizer::decode(*tokenizer, ids, /*skipSpecial=*/true);
}

std::vector<int32_t> RolloutTokenizer::stopTokens() const {
  std::vector<int32_t> tokens = ends;
  std::vector<std::string> strings; // only tokens end a completion
  if (chat)
    serve::addChatStops(*chat, *tokenizer, tokens, strings);
  return tokens;
}

} // namespace tessera::rl
