// Renders the messages of a chat as a prompt.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/serve/Api.h"
#include "runtime/serve/Reasoning.h"
#include "runtime/serve/ToolCalls.h"

#include <span>

namespace tessera::serve {

/// A part of a prompt. Special tokens are not recognized in content of the
/// user.
struct PromptPart {
  std::string text;
  bool isUsers = false;
};

class ChatRenderer {
public:
  virtual ~ChatRenderer() = default;
  /// The messages, and the generation prompt; the assistant may call `tools`.
  /// Tools and calls require hasTools(), and variables require
  /// checkVariables().
  virtual StatusOr<std::vector<PromptPart>>
  render(std::span<const ChatMessage> messages, std::span<const Tool> tools,
         const TemplateSettings &settings) const = 0;
  /// Whether the template may use these variables, the members of a JSON
  /// object.
  virtual Status checkVariables(std::string_view json) const;
  /// How the model writes tool calls; null: not at all.
  virtual const ToolFormat *toolFormat() const { return nullptr; }
  /// Whether the template may read this variable.
  virtual bool mayRead(std::string_view /*variable*/) const { return false; }
  /// Whether the model writes messages in channels (Channels.h), for reasoning
  /// and calls alike; toolFormat() and reasoningTags() are then null.
  virtual bool hasChannels() const { return false; }
  /// Whether the template shows tools to a model whose calls can be read.
  virtual bool hasTools() const { return toolFormat() != nullptr; }
  /// The tags around the model's reasoning; null: it writes none.
  virtual const ReasoningTags *reasoningTags() const { return nullptr; }
  /// Stop strings, which may be special tokens.
  virtual std::vector<std::string> stops() const = 0;
};

/// The tokens of parts in order. Content of the user that would become a
/// special token is an error.
StatusOr<std::vector<int32_t>> partTokens(std::span<const PromptPart> parts,
                                          const tokenizer::Tokenizer &tokenizer,
                                          tokenizer::Encoder &encoder);

/// The tokens of the prompt. A message whose content would become a special
/// token is an error.
StatusOr<std::vector<int32_t>>
chatTokens(const ChatRenderer &chat, std::span<const ChatMessage> messages,
           std::span<const Tool> tools, const tokenizer::Tokenizer &tokenizer,
           tokenizer::Encoder &encoder, const TemplateSettings &settings = {});

/// Adds the template's stops: as tokens, or as strings that are not tokens.
void addChatStops(const ChatRenderer &chat,
                  const tokenizer::Tokenizer &tokenizer,
                  std::vector<int32_t> &tokens,
                  std::vector<std::string> &strings);

/// ChatML (OpenAI 2023, as Qwen writes it): <|im_start|>ROLE\nTEXT<|im_end|>\n.
/// For models without a template.
const ChatRenderer &chatMl();

} // namespace tessera::serve
