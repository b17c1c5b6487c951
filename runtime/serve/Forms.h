// Answers that must have a form: `response_format` of chats, regular
// expressions and grammars, calls of tools.
#pragma once
#include "runtime/data/Json.h"
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/infer/grammar/GrammarGuide.h"
#include "runtime/serve/Api.h"
#include "runtime/serve/ToolCalls.h"

#include <list>
#include <memory>
#include <string>
#include <vector>

namespace tessera::serve {

/// A form as a request asks for it.
struct AnswerForm {
  std::shared_ptr<const grammar::Grammar> grammar;
  std::string key;  ///< equal for equal forms
  std::string json; ///< as `response_format` asked for it; empty: otherwise
  /// Nothing but the form's text is allowed, no space before it either.
  bool isExact = false;
};

/// Reads {"type": "json_object"} and {"type": "json_schema", "json_schema":
/// {"name", "schema", …}}; null for {"type": "text"}. An error says what is
/// wrong, or which keyword of a schema is not supported.
StatusOr<std::shared_ptr<const AnswerForm>>
parseAnswerForm(const JsonValue &format);

/// Reads what other servers have beside `response_format`, by its name: "json"
/// (a schema, or its text), "json_object" (true), "regex", "choice" (texts) or
/// "grammar" (GBNF).
StatusOr<std::shared_ptr<const AnswerForm>>
parseTextForm(std::string_view kind, const JsonValue &value);

/// The same of "json", "regex" or "grammar" as a text.
StatusOr<std::shared_ptr<const AnswerForm>>
parseTextForm(std::string_view kind, std::string_view text);

/// Whether the answer must keep a form to call tools as it was asked for.
bool needsToolForm(const ApiRequest &request);
/// The form of answers with calls. `hasTag`: the text before a call can be
/// told by the guide, which knows no special tokens.
StatusOr<std::shared_ptr<const AnswerForm>>
makeToolForm(const ApiRequest &request, const ToolFormat &format, bool hasTag);

/// Makes guides. Keeps the forms that were asked for last, with the masks that
/// were found out for them. One thread at a time; the tokenizer outlives it.
class AnswerForms {
public:
  explicit AnswerForms(const tokenizer::Tokenizer &tokenizer)
      : tokenizer(tokenizer) {}
  /// For one text, which `ends` may end.
  std::shared_ptr<TokenGuide> guide(const AnswerForm &form,
                                    std::vector<int32_t> ends);

private:
  /// Whether decoding drops the space that begins a text.
  bool dropsSpace() const;
  struct Kept {
    std::string key;
    std::shared_ptr<grammar::TokenGrammar> grammar;
  };
  const tokenizer::Tokenizer &tokenizer;
  std::shared_ptr<const grammar::Vocabulary> vocabulary; ///< on first use
  bool beginsWithSpace = false; ///< what must decode to an exact form
  std::list<Kept> kept;         ///< the latest first
};

} // namespace tessera::serve
