// Structured output: `response_format`, regular expressions, grammars, and tool
// calls.
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

/// The structured output of a request.
struct AnswerForm {
  std::shared_ptr<const grammar::Grammar> grammar;
  std::string key;  ///< equal for equal constraints
  std::string json; ///< `response_format`; empty: set by another field
  /// The output must match exactly, without a leading space.
  bool isExact = false;
};

/// Reads {"type": "json_object"} and {"type": "json_schema", "json_schema":
/// {"name", "schema", …}}; null for {"type": "text"}. An error says what is
/// wrong, or which keyword of a schema is not supported.
StatusOr<std::shared_ptr<const AnswerForm>>
parseAnswerForm(const JsonValue &format);

/// Reads the constraints of other servers by their names: "json" (a schema, or
/// a string of one), "json_object" (true), "regex", "choice" (strings) or
/// "grammar" (GBNF).
StatusOr<std::shared_ptr<const AnswerForm>>
parseTextForm(std::string_view kind, const JsonValue &value);

/// The same for "json", "regex" or "grammar" as a string.
StatusOr<std::shared_ptr<const AnswerForm>>
parseTextForm(std::string_view kind, std::string_view text);

/// Whether tool calls of this request need guided decoding.
bool needsToolForm(const ApiRequest &request);
/// The structured output of tool calls. `hasTag`: the tag of a call is visible
/// to the guide, which sees no special tokens.
StatusOr<std::shared_ptr<const AnswerForm>>
makeToolForm(const ApiRequest &request, const ToolFormat &format, bool hasTag);

/// The structured output of one call's arguments alone.
StatusOr<std::shared_ptr<const AnswerForm>> makeArgumentsForm(const Tool &tool);

/// Makes guides. Caches the latest grammars with their masks. Not thread-safe;
/// the tokenizer must outlive it.
class AnswerForms {
public:
  explicit AnswerForms(const tokenizer::Tokenizer &tokenizer)
      : tokenizer(tokenizer) {}
  /// A guide for one sequence, which `ends` may end.
  std::shared_ptr<TokenGuide> guide(const AnswerForm &form,
                                    std::vector<int32_t> ends);

private:
  /// Whether decoding drops a leading space.
  bool dropsSpace() const;
  struct Kept {
    std::string key;
    std::shared_ptr<grammar::TokenGrammar> grammar;
  };
  const tokenizer::Tokenizer &tokenizer;
  std::shared_ptr<const grammar::Vocabulary> vocabulary; ///< on first use
  bool beginsWithSpace = false; ///< of tokens whose decoding must match exactly
  std::list<Kept> kept;         ///< most recent first
};

} // namespace tessera::serve
