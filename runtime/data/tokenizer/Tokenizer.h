// Byte-level BPE tokenizers in the form of the Hugging Face `tokenizers`
// library's tokenizer.json: what GPT-2, Llama 3 and Qwen2 use and what
// `tessera data tokenizer` trains. Encoding gives the ids that `tokenizers`
// gives without special tokens of its own (add_special_tokens=False): the
// post-processor is not applied.
#pragma once
#include "runtime/data/tokenizer/AddedTokens.h"
#include "runtime/data/tokenizer/BpeModel.h"
#include "runtime/data/tokenizer/PreTokenizer.h"
#include "runtime/support/Status.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tokenizer {

/// What a token stands for.
struct TokenText {
  std::string bytes;
  bool present = false; // false: no token has this id
  bool special = false;
};

/// A tokenizer as read from its file; constant, so that any number of threads
/// may share it.
class Tokenizer {
public:
  /// Reads tokenizer.json. Refused, by name: models other than BPE, byte
  /// fallback, dropout, continuing prefixes, normalizers other than NFC,
  /// splitting patterns that are not known, tokens missing for single bytes.
  static StatusOr<Tokenizer> load(const std::string &path);
  /// The same for text in memory; `where` names it in errors.
  static StatusOr<Tokenizer> parse(std::string_view json,
                                   const std::string &where);

  /// The largest id + 1; some ids below may have no token.
  uint32_t vocabSize() const { return static_cast<uint32_t>(texts.size()); }
  /// The token `id`; one that is not present for ids out of range.
  const TokenText &token(uint32_t id) const;
  /// The id of an added token, e.g. "<|endoftext|>".
  std::optional<uint32_t> addedToken(std::string_view content) const;
  const std::vector<AddedToken> &addedTokens() const { return added; }
  /// The token that ends a document: <|endoftext|> (GPT-2, Qwen) or
  /// <|end_of_text|> (Llama 3), if there is one.
  std::optional<uint32_t> documentEnd() const;
  /// XXH3-64 of the file's bytes.
  uint64_t hash() const { return contentHash; }

private:
  friend class Encoder;
  friend class TokenizerReader;
  Tokenizer() = default;

  BpeModel model;
  SplitPattern pattern = SplitPattern::Gpt2;
  bool addPrefixSpace = false;
  bool nfc = false;
  std::vector<TokenText> texts; // by id
  std::vector<AddedToken> added;
  AddedTokenMatcher rawMatcher, normalizedMatcher;
  uint64_t contentHash = 0;
};

/// How the text of special tokens in the input is read.
enum class SpecialText : uint8_t {
  Parse, // "<|endoftext|>" is that token: for prompts
  Plain, // it is text like any other: for training data and what users say
};

/// Turns text into ids. Holds a cache and working memory: one a thread. The
/// tokenizer must outlive it.
class Encoder {
public:
  explicit Encoder(const Tokenizer &tokenizer);
  ~Encoder();
  Encoder(Encoder &&) noexcept;

  /// Appends the ids of `text` to `out`. Text that is not valid UTF-8 is
  /// encoded byte by byte, and decodes to the same bytes.
  void encode(std::string_view text, SpecialText special,
              std::vector<uint32_t> &out);
  std::vector<uint32_t> encode(std::string_view text,
                               SpecialText special = SpecialText::Parse);

private:
  void encodePlain(std::string_view text, bool plainSpecials,
                   std::vector<uint32_t> &out);
  void encodePieces(std::string_view text, std::vector<uint32_t> &out);

  class PieceCache;
  const Tokenizer &tokenizer;
  BpeMerger merger;
  std::unique_ptr<PieceCache> cache;
};

/// The bytes of a sequence of ids, which need not be valid UTF-8. Ids without
/// a token stand for nothing.
std::string decodeBytes(const Tokenizer &tokenizer,
                        std::span<const uint32_t> ids,
                        bool skipSpecial = false);

/// The text of a sequence of ids; what is not valid UTF-8 becomes U+FFFD.
std::string decode(const Tokenizer &tokenizer, std::span<const uint32_t> ids,
                   bool skipSpecial = false);

/// Decodes ids as they come: each call returns the text that is certain by
/// then, always valid UTF-8; a character that several tokens share appears
/// with the last of them. The tokenizer must outlive it.
class StreamDecoder {
public:
  explicit StreamDecoder(const Tokenizer &tokenizer, bool skipSpecial = false)
      : tokenizer(tokenizer), skipSpecial(skipSpecial) {}
  std::string push(uint32_t id);
  /// What was held back, replaced by U+FFFD as it stays incomplete.
  std::string finish();

private:
  const Tokenizer &tokenizer;
  bool skipSpecial;
  std::string held; // at most 3 bytes that begin a character
};

} // namespace tessera::tokenizer
