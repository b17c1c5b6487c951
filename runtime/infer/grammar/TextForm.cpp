#include "runtime/infer/grammar/TextForm.h"
#include "runtime/infer/grammar/JsonText.h"
#include "runtime/infer/grammar/RegexText.h"
#include "runtime/support/Text.h"

namespace tessera::grammar {

static uint32_t addBeginning(Grammar &grammar) {
  uint32_t from = grammar.startOf(grammar.addRule()), to = grammar.addNode();
  grammar.addSkip(from, to);
  return to;
}

StatusOr<Grammar> grammarOfRegex(std::string_view pattern) {
  Grammar grammar;
  uint32_t from = addBeginning(grammar);
  RegexText texts(grammar, RegexText::Spelling::plain);
  auto end = texts.add(from, pattern);
  if (!end.ok())
    return end.status();
  grammar.setFinal(*end);
  TESSERA_RETURN_IF_ERROR(grammar.finish());
  return grammar;
}

StatusOr<Grammar> grammarOfChoice(std::vector<std::string> texts) {
  constexpr size_t kMaxTexts = 20'000; // as values of schemas
  if (texts.empty() || texts.size() > kMaxTexts)
    return Status::error("a choice has {} texts, it must have 1 to {}",
                         texts.size(), kMaxTexts);
  for (const std::string &text : texts)
    if (!isUtf8(text))
      return Status::error("a text of the choice is not UTF-8");
  Grammar grammar;
  uint32_t from = addBeginning(grammar);
  grammar.setFinal(JsonText(grammar).oneOf(from, std::move(texts)));
  TESSERA_RETURN_IF_ERROR(grammar.finish());
  return grammar;
}

} // namespace tessera::grammar
