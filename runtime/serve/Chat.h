// From the messages of a chat to the text that a model continues.
#pragma once
#include "runtime/serve/Api.h"

#include <span>

namespace tessera::serve {

/// A part of a prompt. What a user wrote has no special tokens: their text in
/// it stays text.
struct PromptPart {
  std::string text;
  bool isUsers = false;
};

class ChatRenderer {
public:
  virtual ~ChatRenderer() = default;
  /// The messages, and the beginning of the assistant's answer.
  virtual StatusOr<std::vector<PromptPart>>
  render(std::span<const ChatMessage> messages) const = 0;
  /// Texts, perhaps of special tokens, that end an answer.
  virtual std::vector<std::string> stops() const = 0;
};

/// ChatML (OpenAI 2023, as Qwen writes it): <|im_start|>ROLE\nTEXT<|im_end|>\n.
/// For models that bring no template.
const ChatRenderer &chatMl();

} // namespace tessera::serve
