#include "runtime/data/chat/ChatEncoder.h"
#include "runtime/data/ShallowJson.h"
#include "runtime/data/chat/PlainSpecials.h"
#include "runtime/data/tokenizer/TokenCuts.h"

#include <algorithm>

namespace tessera::chat {

using tokenizer::SpecialText;
using tokenizer::TokenCut;

Status ChatEncoder::checkText(std::string_view text,
                              std::string_view advice) const {
  std::optional<uint32_t> special = format.tokenizer.findSpecial(text);
  return !special
             ? Status::success()
             : Status::error("a message has the text of the special token {}, "
                             "which would end or begin a turn; remove it{}",
                             shownName(format.tokenizer.token(*special).bytes),
                             advice);
}

/// Names and strings at any depth, since a template may print each.
Status ChatEncoder::checkPlain(const JsonValue &value,
                               std::string_view advice) const {
  if (std::string_view text; value.get(text))
    return checkText(text, advice);
  for (const JsonValue &element : value.elements())
    TESSERA_RETURN_IF_ERROR(checkPlain(element, advice));
  for (const auto &[name, member] : value.members()) {
    TESSERA_RETURN_IF_ERROR(checkText(name, advice));
    TESSERA_RETURN_IF_ERROR(checkPlain(member, advice));
  }
  return Status::success();
}

/// Of a conversation, in which only what was sampled may have special tokens.
Status ChatEncoder::checkExample(const Example &example) const {
  // Prompts of sampled answers are not from a command with that option.
  const bool isSampled =
      std::ranges::any_of(example.answers, &Answer::isSampled);
  const std::string_view advice =
      isSampled ? "" : ", or take it for the token with --parse-special";
  for (const JsonValue &message : example.prompt)
    TESSERA_RETURN_IF_ERROR(checkPlain(message, advice));
  for (const Answer &answer : example.answers)
    for (const JsonValue &message : answer.messages)
      if (!answer.isSampled)
        TESSERA_RETURN_IF_ERROR(checkPlain(message, advice));
  TESSERA_RETURN_IF_ERROR(checkPlain(example.tools, advice));
  return checkPlain(example.variables, advice);
}

/// Marks the tokens that a span of the text touches.
static void markSpans(std::span<const TokenCut> cuts, EncodedDocument &out) {
  out.supervised.assign(out.tokens.size(), 0);
  for (size_t i = 0; i + 1 < cuts.size(); i += 2)
    for (size_t at = cuts[i].ended; at < cuts[i + 1].begun; ++at)
      out.supervised[at] = 1;
}

Status ChatEncoder::encodeConversation(const Example &example,
                                       const Answer &answer,
                                       EncodedDocument &out) {
  if (!format.source)
    return Status::error("the tokenizer has no chat template; add a "
                         "chat_template.jinja to its directory (tessera data "
                         "chat also takes one by --template)");
  JsonValue::Array messages = example.prompt;
  messages.insert(messages.end(), answer.messages.begin(),
                  answer.messages.end());
  size_t first = example.prompt.size();
  for (size_t i = first; i < messages.size(); ++i)
    if (isAssistant(messages[i])) {
      ++out.turns;
      if (options.turns == SupervisedTurns::Last)
        first = i;
    }
  const bool scores = options.use == ExampleUse::Score;
  if (out.turns == 0)
    return Status::error("has no message of the assistant, so that there is "
                         "nothing to {}",
                         scores ? "score" : "learn");
  const Conversation conversation{messages, example.tools, example.variables};
  if (scores)
    return readConversation(answer, conversation, out);
  if (options.turns == SupervisedTurns::Last)
    out.turns = 1;
  StatusOr<RenderedText> text =
      renderTurns(*format.source, conversation, first, options.rendering);
  if (!text.ok())
    return text.status();
  std::vector<size_t> offsets;
  for (const TextSpan &span : text->generated)
    offsets.insert(offsets.end(), {span.begin, span.end});
  std::vector<TokenCut> cuts;
  encodeWithCuts(encoder, format.tokenizer, text->text, SpecialText::Parse,
                 offsets, out.tokens, cuts);
  markSpans(cuts, out);
  return Status::success();
}

Status ChatEncoder::readConversation(const Answer &answer,
                                     const Conversation &conversation,
                                     EncodedDocument &out) {
  StatusOr<std::string> text =
      renderConversation(*format.source, conversation, options.rendering);
  if (!text.ok())
    return text.status();
  std::vector<TextSpan> plain;
  if (answer.isSampled)
    plain = findSpecials(format.tokenizer, answer.text, 0);
  if (!plain.empty()) {
    auto markers = SpanMarkers::notIn(*text);
    if (!markers.ok())
      return markers.status();
    JsonValue::Array messages(conversation.messages.begin(),
                              conversation.messages.end());
    messages.back() = assistantMessage(markers->mark(answer.text, plain));
    StatusOr<std::string> marked = renderConversation(
        *format.source, {messages, conversation.tools, conversation.variables},
        options.rendering);
    if (!marked.ok())
      return marked.status();
    plain = markers->unmark(*marked);
    if (*marked != *text)
      return Status::error("the template changes an answer with the text of a "
                           "special token, so that it is not known where it "
                           "stands");
  }
  return encodeAround(encoder, format.tokenizer, *text, plain, out.tokens);
}

/// Prompt and answer, with the end of the turn unless it is there.
std::string ChatEncoder::textOf(const Example &example,
                                const Answer &answer) const {
  std::string text = example.promptText + answer.text;
  if (!answer.isCut &&
      (answer.isSampled || !answer.text.ends_with(format.end.text)))
    text += format.end.text;
  return text;
}

Status ChatEncoder::readStrings(const Example &example, const Answer &answer,
                                EncodedDocument &out) {
  const auto prefix = format.tokenizer.framePrefix();
  const auto suffix = format.tokenizer.frameSuffix();
  std::vector<TextSpan> plain;
  if (answer.isSampled)
    plain = findSpecials(format.tokenizer, example.promptText + answer.text,
                         example.promptText.size());
  std::vector<uint32_t> ids;
  TESSERA_RETURN_IF_ERROR(encodeAround(encoder, format.tokenizer,
                                       textOf(example, answer), plain, ids));
  out.tokens.assign(prefix.begin(), prefix.end());
  out.tokens.insert(out.tokens.end(), ids.begin(), ids.end());
  out.tokens.insert(out.tokens.end(), suffix.begin(), suffix.end());
  return Status::success();
}

Status ChatEncoder::encodeStrings(const Example &example, const Answer &answer,
                                  EncodedDocument &out) {
  if (options.use == ExampleUse::Score)
    return readStrings(example, answer, out);
  const std::string text = textOf(example, answer);
  std::vector<uint32_t> ids;
  std::vector<TokenCut> cuts;
  const size_t offset = example.promptText.size();
  encodeWithCuts(encoder, format.tokenizer, text, SpecialText::Parse,
                 {&offset, 1}, ids, cuts);
  const auto prefix = format.tokenizer.framePrefix();
  const auto suffix = format.tokenizer.frameSuffix();
  out.tokens.assign(prefix.begin(), prefix.end());
  out.tokens.insert(out.tokens.end(), ids.begin(), ids.end());
  out.tokens.insert(out.tokens.end(), suffix.begin(), suffix.end());
  out.supervised.assign(out.tokens.size(), 1);
  std::fill_n(out.supervised.begin(), prefix.size() + cuts[0].ended, 0);
  out.turns = 1;
  return Status::success();
}

uint32_t ChatEncoder::countEnds(const EncodedDocument &document) const {
  uint32_t ends = 0;
  for (size_t i = 1; i < document.tokens.size(); ++i)
    ends += document.supervised[i] && format.end.contains(document.tokens[i]);
  return ends;
}

StatusOr<EncodedExample> ChatEncoder::encode(const Example &example) {
  if (example.isConversation && !options.parsesSpecial)
    TESSERA_RETURN_IF_ERROR(checkExample(example));
  EncodedExample encoded;
  for (const Answer &answer : example.answers) {
    EncodedDocument &document = encoded.emplace_back();
    document.kind = answer.kind;
    TESSERA_RETURN_IF_ERROR(example.isConversation
                                ? encodeConversation(example, answer, document)
                                : encodeStrings(example, answer, document));
    if (options.use == ExampleUse::Score)
      continue;
    // A document's first token has nothing before it to be predicted from.
    bool learns = false;
    for (size_t i = 1; i < document.tokens.size(); ++i)
      learns |= document.supervised[i];
    document.ends = countEnds(document);
    if (!learns)
      return Status::error("has no token to learn: the assistant's turns are "
                           "empty");
  }
  if (options.use == ExampleUse::Learn && encoded.size() == 2 &&
      encoded[0].tokens == encoded[1].tokens)
    return Status::error("\"chosen\" and \"rejected\" have the same tokens, so "
                         "that nothing can be learned from the pair");
  return encoded;
}

} // namespace tessera::chat
