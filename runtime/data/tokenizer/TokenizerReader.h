// The reader behind Tokenizer::parse, split by the parts of tokenizer.json.
#pragma once
#include "runtime/data/Json.h"
#include "runtime/data/tokenizer/Tokenizer.h"

namespace tessera::tokenizer {

/// Builds a tokenizer from a parsed file. Every read* function proves its part
/// before anything is allocated from it.
class TokenizerReader {
public:
  TokenizerReader(std::string where) : where(std::move(where)) {}
  StatusOr<Tokenizer> read(std::string_view json);

private:
  Status readNormalizer(const JsonValue &normalizer);
  Status readPreTokenizer(const JsonValue &preTokenizer);
  Status readByteLevel(const JsonValue &byteLevel, bool afterSplit);
  Status readSplit(const JsonValue &split);
  Status readSequence(const JsonValue &sequence);
  Status readDecoder(const JsonValue &decoder);

  Status readModel(const JsonValue &model);
  Status readModelOptions(const JsonValue &model);
  Status readVocabulary(const JsonValue &vocabulary);
  Status readMerges(const JsonValue::Array &merges);
  Status readByteTokens();

  Status readAddedTokens(const JsonValue::Array &tokens);
  Status readAddedToken(const JsonValue &fields, size_t index);

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
/// The object's "type", empty where it has none.
std::string_view typeOf(const JsonValue &object);

} // namespace tessera::tokenizer
