#include "runtime/data/chat/TurnSpans.h"

#include <algorithm>

namespace tessera::chat {

/// Of all the renderings of one conversation.
static constexpr uint64_t maxRenderedBytes = 256 << 20;

bool isAssistant(const JsonValue &message) {
  std::string_view role;
  return message["role"].get(role) && role == "assistant";
}

namespace {
class TurnRenderer {
public:
  TurnRenderer(const ChatTemplate &source, const Conversation &conversation,
               const RenderOptions &options)
      : source(source), conversation(conversation), options(options) {}

  StatusOr<RenderedText> mark(size_t first);

private:
  /// Sets `length` to that of the first `count` messages' text, which must
  /// begin the whole.
  Status measure(size_t count, bool opensAnswer, size_t &length);
  Status markByPrefixes(size_t first);
  Status keepFrom(size_t first);

  const ChatTemplate &source;
  const Conversation &conversation;
  const RenderOptions &options;
  RenderedText whole;
  uint64_t rendered = 0; ///< bytes
};
} // namespace

/// Of the first `count` messages.
static JsonValue variablesOf(const Conversation &conversation, size_t count,
                             bool opensAnswer) {
  auto messages = conversation.messages.first(count);
  JsonValue::Object object = conversation.variables.members();
  object.push_back(
      {"messages", JsonValue::array({messages.begin(), messages.end()})});
  // transformers gives both to the template, None if there are none.
  object.push_back({"tools", conversation.tools});
  object.push_back({"documents", JsonValue()});
  object.push_back({"add_generation_prompt", JsonValue::boolean(opensAnswer)});
  return JsonValue::object(std::move(object));
}

Status TurnRenderer::measure(size_t count, bool opensAnswer, size_t &length) {
  StatusOr<std::string> text =
      source.render(variablesOf(conversation, count, opensAnswer), options);
  if (!text.ok())
    return text.status();
  rendered += text->size();
  if (rendered > maxRenderedBytes)
    return Status::error("too long to find its turns by rendering its parts; "
                         "use a template with {{% generation %}} blocks");
  length = text->size();
  if (whole.text.starts_with(*text))
    return Status::success();
  return Status::error(
      "rendering {} message{}{} does not begin the whole text (the template "
      "changes earlier messages), so that it is not known what the assistant "
      "wrote; use a template with {{% generation %}} blocks (--template), or "
      "train on the last turn only (--supervise last)",
      count, count == 1 ? "" : "s", opensAnswer ? " and an open answer" : "");
}

Status TurnRenderer::markByPrefixes(size_t first) {
  const auto &messages = conversation.messages;
  for (size_t i = first; i < messages.size(); ++i) {
    if (!isAssistant(messages[i]))
      continue;
    TextSpan span{0, whole.text.size()};
    TESSERA_RETURN_IF_ERROR(measure(i, /*opensAnswer=*/true, span.begin));
    if (i + 1 < messages.size())
      TESSERA_RETURN_IF_ERROR(measure(i + 1, /*opensAnswer=*/false, span.end));
    if (span.begin > span.end)
      return Status::error("message {}: the template ends the turn before its "
                           "generation prompt; use a template with "
                           "{{% generation %}} blocks (--template)",
                           i);
    if (span.begin < span.end)
      whole.generated.push_back(span);
  }
  return Status::success();
}

/// Drops what is generated before message `first`.
Status TurnRenderer::keepFrom(size_t first) {
  size_t begin = 0;
  if (first > 0)
    TESSERA_RETURN_IF_ERROR(measure(first, /*opensAnswer=*/true, begin));
  for (TextSpan &span : whole.generated)
    span.begin = std::max(span.begin, begin);
  std::erase_if(whole.generated,
                [](const TextSpan &span) { return span.begin >= span.end; });
  return Status::success();
}

StatusOr<RenderedText> TurnRenderer::mark(size_t first) {
  const size_t count = conversation.messages.size();
  StatusOr<RenderedText> text = source.renderMarked(
      variablesOf(conversation, count, /*opensAnswer=*/false), options);
  if (!text.ok())
    return text.status();
  whole = text.take();
  TESSERA_RETURN_IF_ERROR(source.marksGeneration() ? keepFrom(first)
                                                   : markByPrefixes(first));
  return std::move(whole);
}

StatusOr<std::string> renderConversation(const ChatTemplate &source,
                                         const Conversation &conversation,
                                         const RenderOptions &options) {
  return source.render(variablesOf(conversation, conversation.messages.size(),
                                   /*opensAnswer=*/false),
                       options);
}

StatusOr<RenderedText> renderTurns(const ChatTemplate &source,
                                   const Conversation &conversation,
                                   size_t first, const RenderOptions &options) {
  return TurnRenderer(source, conversation, options).mark(first);
}

} // namespace tessera::chat
