// The implementation of Tokenizer::parse; one source file for each group of
// sections of tokenizer.json.
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
  // Parts that may be sequences of parts: `depth` is how many they are within.
  Status readNormalizer(const JsonValue &part, size_t depth);
  Status readBertNormalizer(const JsonValue &part);
  Status readReplace(const JsonValue &part);
  Status readCharacterMap(const JsonValue &part);
  Status readPreTokenizer(const JsonValue &part, size_t depth);
  Status readByteLevel(const JsonValue &part);
  Status readSplit(const JsonValue &part);
  Status readSplitBehavior(const JsonValue &part, SplitBehavior &behavior);
  Status readMetaspace(const JsonValue &part, std::string &mark,
                       PrependScheme &prepend, bool &split);
  Status addSplit(std::string_view regex, SplitBehavior behavior,
                  bool invert = false);
  Status readDecoder(const JsonValue &part, size_t depth);
  Status readDecoderStep(const JsonValue &part);
  Status readStripDecoder(const JsonValue &part);
  Status readPostProcessor(const JsonValue &part, size_t depth);
  Status readTemplate(const JsonValue &part);
  void readPair(const JsonValue &part);
  Status readTemplateToken(const JsonValue &part, std::string_view name,
                           std::vector<uint32_t> &ids);
  Status readFrameToken(const JsonValue &part, const char *key,
                        std::vector<uint32_t> &ids);

  Status readModel(const JsonValue &model);
  Status readBpe(const JsonValue &model);
  Status readBpeOptions(const JsonValue &model, BpeModel &bpe);
  Status readUnigram(const JsonValue &model);
  Status readUnigramPiece(const JsonValue &piece, size_t id,
                          UnigramModel &unigram);
  Status readWordPiece(const JsonValue &model);
  Status readVocabulary(const JsonValue &vocabulary);
  Status readMerges(const JsonValue::Array &merges, BpeModel &bpe);
  Status readUnknownToken(const JsonValue &model, uint32_t &unknown);
  bool fillByteTokens(BpeModel &bpe) const;
  void fillFallback(std::array<uint32_t, 256> &tokens) const;

  Status readAddedTokens(const JsonValue::Array &tokens);
  Status readAddedToken(const JsonValue &fields, size_t index);
  Status claimId(uint64_t id, std::string_view text);

  /// {"Regex": …} or {"String": …}.
  Status readPattern(const JsonValue &part,
                     std::shared_ptr<const Regex> &regex);
  /// Leaves `value` alone where there is none.
  Status readFlag(const JsonValue &part, const char *key, bool &value);
  Status readText(const JsonValue &part, const char *key,
                  std::string_view &value);
  template <typename... Args>
  Status error(fmt::format_string<Args...> format, Args &&...args) const {
    return Status::error("{}: {}", where,
                         fmt::format(format, std::forward<Args>(args)...));
  }

  std::string where;
  Tokenizer result;
  uint64_t idLimit = 0; // ids are below
  bool fused = false;   // the decoders so far leave one text
  // Tokens by their text in the file; the text lives in the parsed document.
  std::unordered_map<std::string_view, uint32_t> idsByText;
};

/// Of steps and of sequences within sequences.
inline constexpr size_t maxTokenizerSteps = 32;
inline constexpr size_t maxSequenceDepth = 8;

/// Text of the file for an error: at most `shown` bytes of it, on one line.
std::string quoteForError(std::string_view text, size_t shown = 40);
/// The object's "type", empty where it has none.
std::string_view typeOf(const JsonValue &object);

} // namespace tessera::tokenizer
