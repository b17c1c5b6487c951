// The reader behind Tokenizer::parse, split by the parts of tokenizer.json.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"

#include <simdjson.h>

namespace tessera::tokenizer {

/// Builds a tokenizer from a parsed file. Every read* function proves its part
/// before anything is allocated from it.
class TokenizerReader {
public:
  TokenizerReader(std::string where) : where(std::move(where)) {}
  StatusOr<Tokenizer> read(std::string_view json);

private:
  using Object = simdjson::dom::object;
  using Element = simdjson::dom::element;

  Status readNormalizer(Element element);
  Status readPreTokenizer(Element element);
  Status readByteLevel(Object byteLevel, bool afterSplit);
  Status readSplit(Object split);
  Status readSequence(Object sequence);
  Status readDecoder(Element element);

  Status readModel(Object model);
  Status readModelOptions(Object model);
  Status readVocabulary(Object vocabulary);
  Status readMerges(simdjson::dom::array merges);
  Status readByteTokens();

  Status readAddedTokens(simdjson::dom::array tokens);
  Status readAddedToken(Object object, size_t index);

  Status claimId(uint64_t id, std::string_view text);
  template <typename... Args>
  Status error(fmt::format_string<Args...> format, Args &&...args) const {
    return Status::error("{}: {}", where,
                         fmt::format(format, std::forward<Args>(args)...));
  }

  std::string where;
  Tokenizer result;
  // Tokens by their text in the file; the text lives in the parsed document.
  std::unordered_map<std::string_view, uint32_t> idsByText;
};

/// Text of the file for an error: at most `shown` bytes of it, on one line.
std::string quoteForError(std::string_view text, size_t shown = 40);
bool isNullOrAbsent(simdjson::dom::object object, std::string_view key);
/// The object's "type", empty where it has none.
std::string_view typeOf(simdjson::dom::object object);

} // namespace tessera::tokenizer
