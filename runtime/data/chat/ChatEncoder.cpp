#include "runtime/data/chat/ChatEncoder.h"
#include "runtime/data/ShallowJson.h"
#include "runtime/data/chat/TurnSpans.h"
#include "runtime/data/tokenizer/TokenCuts.h"

#include <algorithm>

namespace tessera::chat {

using tokenizer::SpecialText;
using tokenizer::TokenCut;

Status ChatEncoder::checkText(std::string_view text) const {
  std::optional<uint32_t> special = format.tokenizer.findSpecial(text);
  return !special
             ? Status::success()
             : Status::error("a message has the text of the special token {}, "
                             "which would end or begin a turn; remove it, or "
                             "take it for the token with --parse-special",
                             shownName(format.tokenizer.token(*special).bytes));
}

/// Names and strings at any depth, since a template may print each.
Status ChatEncoder::checkPlain(const JsonValue &value) const {
  if (std::string_view text; value.get(text))
    return checkText(text);
  for (const JsonValue &element : value.elements())
    TESSERA_RETURN_IF_ERROR(checkPlain(element));
  for (const auto &[name, member] : value.members()) {
    TESSERA_RETURN_IF_ERROR(checkText(name));
    TESSERA_RETURN_IF_ERROR(checkPlain(member));
  }
  return Status::success();
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
  if (out.turns == 0)
    return Status::error("has no message of the assistant, so that there is "
                         "nothing to learn");
  if (options.turns == SupervisedTurns::Last)
    out.turns = 1;
  StatusOr<RenderedText> text =
      renderTurns(*format.source, {messages, example.tools, example.variables},
                  first, options.rendering);
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

Status ChatEncoder::encodeStrings(const Example &example, const Answer &answer,
                                  EncodedDocument &out) {
  std::string text = example.promptText + answer.text;
  if (!answer.isCut && !answer.text.ends_with(format.end.text))
    text += format.end.text;
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
  if (example.isConversation && !options.parsesSpecial) {
    for (const JsonValue &message : example.prompt)
      TESSERA_RETURN_IF_ERROR(checkPlain(message));
    for (const Answer &answer : example.answers)
      for (const JsonValue &message : answer.messages)
        TESSERA_RETURN_IF_ERROR(checkPlain(message));
    TESSERA_RETURN_IF_ERROR(checkPlain(example.tools));
    TESSERA_RETURN_IF_ERROR(checkPlain(example.variables));
  }
  EncodedExample encoded;
  for (const Answer &answer : example.answers) {
    EncodedDocument &document = encoded.emplace_back();
    document.kind = answer.kind;
    TESSERA_RETURN_IF_ERROR(example.isConversation
                                ? encodeConversation(example, answer, document)
                                : encodeStrings(example, answer, document));
    // A document's first token has nothing before it to be predicted from.
    bool learns = !options.mustLearn;
    for (size_t i = 1; i < document.tokens.size(); ++i)
      learns |= document.supervised[i];
    document.ends = countEnds(document);
    if (!learns)
      return Status::error("has no token to learn: the assistant's turns are "
                           "empty");
  }
  if (encoded.size() == 2 && encoded[0].tokens == encoded[1].tokens)
    return Status::error("\"chosen\" and \"rejected\" have the same tokens, so "
                         "that nothing can be learned from the pair");
  return encoded;
}

} // namespace tessera::chat
