// What of a rendered conversation the model itself wrote.
#pragma once
#include "runtime/infer/chat/ChatTemplate.h"

#include <span>
#include <vector>

namespace tessera::chat {

/// A conversation as a template takes it.
struct Conversation {
  std::span<const JsonValue> messages;
  const JsonValue &tools;     ///< an array or null
  const JsonValue &variables; ///< an object or null
};

/// The text of a conversation.
StatusOr<std::string> renderConversation(const ChatTemplate &source,
                                         const Conversation &conversation,
                                         const RenderOptions &options);

/// Renders a conversation and marks the turns of the assistant that are among
/// the messages from `first` on, each with its end-of-turn token and what
/// follows it up to the next turn.
///
/// A template with generation blocks marks the turns itself. Of another one the
/// turn of message i is what rendering messages 0 … i has after rendering
/// messages 0 … i-1 with a generation prompt; it is an error if one is not a
/// prefix of the other, or of the whole.
StatusOr<RenderedText> renderTurns(const ChatTemplate &source,
                                   const Conversation &conversation,
                                   size_t first, const RenderOptions &options);

/// Whether the message is a turn of the assistant.
bool isAssistant(const JsonValue &message);

} // namespace tessera::chat
