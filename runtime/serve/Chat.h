// From the messages of a chat to the text that a model continues.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/serve/Api.h"
#include "runtime/serve/ToolCalls.h"

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
  /// The messages, and the beginning of the assistant's answer, which may call
  /// `tools`. Only with a toolFormat() there may be tools and calls, and only
  /// such variables as checkVariables() takes.
  virtual StatusOr<std::vector<PromptPart>>
  render(std::span<const ChatMessage> messages, std::span<const Tool> tools,
         const TemplateSettings &settings) const = 0;
  /// Whether the template may see these variables, a JSON object's members.
  virtual Status checkVariables(std::string_view json) const;
  /// How the model writes calls; null: it was taught none.
  virtual const ToolFormat *toolFormat() const { return nullptr; }
  /// Texts, perhaps of special tokens, that end an answer.
  virtual std::vector<std::string> stops() const = 0;
};

/// The tokens of a prompt for the assistant's answer. A message whose text
/// would become a special token is refused.
StatusOr<std::vector<int32_t>>
chatTokens(const ChatRenderer &chat, std::span<const ChatMessage> messages,
           std::span<const Tool> tools, const tokenizer::Tokenizer &tokenizer,
           tokenizer::Encoder &encoder, const TemplateSettings &settings = {});

/// Adds what ends an answer of the template: tokens, or texts that are none.
void addChatStops(const ChatRenderer &chat,
                  const tokenizer::Tokenizer &tokenizer,
                  std::vector<int32_t> &tokens,
                  std::vector<std::string> &texts);

/// ChatML (OpenAI 2023, as Qwen writes it): <|im_start|>ROLE\nTEXT<|im_end|>\n.
/// For models that bring no template.
const ChatRenderer &chatMl();

} // namespace tessera::serve
