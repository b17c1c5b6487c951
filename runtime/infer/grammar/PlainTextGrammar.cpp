#include "runtime/infer/grammar/PlainTextGrammar.h"
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
  RegexText regex(grammar, RegexText::Spelling::plain);
  auto end = regex.add(from, pattern);
  if (!end.ok())
    return end.status();
  grammar.setFinal(*end);
  TESSERA_RETURN_IF_ERROR(grammar.finish());
  return grammar;
}

StatusOr<Grammar> grammarOfChoice(std::vector<std::string> choices) {
  constexpr size_t kMaxChoices = 20'000; // the limit of values of a schema
  if (choices.empty() || choices.size() > kMaxChoices)
    return Status::error("a choice has {} strings, it must have 1 to {}",
                         choices.size(), kMaxChoices);
  for (const std::string &choice : choices)
    if (!isUtf8(choice))
      return Status::error("a string of the choice is not UTF-8");
  Grammar grammar;
  uint32_t from = addBeginning(grammar);
  grammar.setFinal(JsonText(grammar).oneOf(from, std::move(choices)));
  TESSERA_RETURN_IF_ERROR(grammar.finish());
  return grammar;
}

} // namespace tessera::grammar
