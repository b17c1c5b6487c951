// Tokenizers in the form of the Hugging Face `tokenizers` library's
// tokenizer.json: byte-level BPE (GPT-2, Llama 3, Qwen2 and what `tessera data
// tokenizer` trains), BPE of characters (Llama 2, Gemma), Unigram (T5, XLM-R)
// and WordPiece (BERT). Encoding gives the ids that `tokenizers` gives.
#pragma once
#include "runtime/data/tokenizer/AddedTokens.h"
#include "runtime/data/tokenizer/BpeModel.h"
#include "runtime/data/tokenizer/Decoder.h"
#include "runtime/data/tokenizer/Normalizer.h"
#include "runtime/data/tokenizer/PreTokenizer.h"
#include "runtime/data/tokenizer/UnigramModel.h"
#include "runtime/data/tokenizer/WordPieceModel.h"
#include "runtime/support/ModelFiles.h"
#include "runtime/support/Status.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera::tokenizer {

/// A token's content.
struct TokenText {
  /// For a decoder of bytes those, otherwise the text in the file.
  std::string bytes;
  bool present = false; // false: no token has this id
  bool special = false;
  bool visible = false; // the file has the visible characters of the bytes
};

/// The tokens that the post-processor adds to a pair of sequences.
struct PairFrame {
  std::vector<uint32_t> before, between, after;
  /// So many tokens of `between`, and those before them, have type 0, the
  /// others type 1; nothing: all have type 0.
  std::optional<size_t> ofFirst = 0;
  bool isKnown = true; ///< false: the file's template is another
};

/// A tokenizer as read from its file; constant, so that any number of threads
/// may share it.
class Tokenizer {
public:
  /// Reads tokenizer.json. Errors name what is unsupported: components that
  /// README.md does not list, dropout, and regular expressions that Regex
  /// rejects. Truncation and padding settings are ignored.
  static StatusOr<Tokenizer> load(const std::string &path);
  /// The tokenizer.json of a model.
  static StatusOr<Tokenizer> of(const ModelFiles &files);
  /// The same for text in memory; `where` names it in errors.
  static StatusOr<Tokenizer> parse(std::string_view json,
                                   const std::string &where);

  /// The largest id + 1; some ids below may have no token.
  uint32_t vocabSize() const { return static_cast<uint32_t>(strings.size()); }
  /// The token `id`; one that is not present for ids out of range.
  const TokenText &token(uint32_t id) const;
  /// The id of an added token, e.g. "<|endoftext|>".
  std::optional<uint32_t> addedToken(std::string_view content) const;
  const std::vector<AddedToken> &addedTokens() const { return added; }
  /// The token as its file writes it: "Ġthe" for the bytes " the".
  std::string written(uint32_t id) const;
  /// The token that ends a document: <|endoftext|> (GPT-2, Qwen) or
  /// <|end_of_text|> (Llama 3), if there is one.
  std::optional<uint32_t> documentEnd() const;
  /// The tokens that the post-processor puts before and after a sequence.
  std::span<const uint32_t> framePrefix() const { return prefix; }
  std::span<const uint32_t> frameSuffix() const { return suffix; }
  /// Whether encodePair has a template.
  bool hasPairs() const { return pair.isKnown; }
  /// A special token whose text is in `text`, if there is one.
  std::optional<uint32_t> findSpecial(std::string_view text) const;
  /// XXH3-64 of the file's bytes.
  uint64_t hash() const { return contentHash; }

private:
  friend class Encoder;
  friend class StreamDecoder;
  friend class TokenizerReader;
  friend std::string decodeBytes(const Tokenizer &, std::span<const uint32_t>,
                                 bool);
  friend std::string addedBytes(const Tokenizer &, uint32_t);
  Tokenizer() = default;

  Normalizer normalizer;
  PreTokenizer preTokenizer;
  std::variant<BpeModel, UnigramModel, WordPieceModel> model;
  /// The model's pieces must be valid UTF-8, so that the text must be.
  bool validText = false;
  Decoder decoder;
  /// The tokens that the post-processor puts before and after a sequence.
  std::vector<uint32_t> prefix, suffix;
  PairFrame pair;
  std::vector<TokenText> strings; // by id
  std::vector<AddedToken> added;
  AddedTokenMatcher rawMatcher, normalizedMatcher, specialMatcher;
  uint64_t contentHash = 0;
};

/// Two sequences with the tokens that the post-processor adds.
struct TextPair {
  std::vector<uint32_t> ids;
  size_t secondBegins = 0; ///< the first of type 1; ids.size(): none
};

/// How special tokens in the input are treated.
enum class SpecialText : uint8_t {
  Parse, // "<|endoftext|>" is that token: for prompts
  Plain, // it is plain text: for training data and user input
};

/// A part of an encoded text: an added token, or what is between two of them.
/// Each part is encoded on its own.
struct TextPart {
  size_t begin = 0, end = 0;           // bytes of the text
  size_t firstToken = 0, tokenEnd = 0; // its ids
  bool isAdded = false;
};

/// Turns text into ids. Holds a cache and working memory: one a thread. The
/// tokenizer must outlive it.
class Encoder {
public:
  explicit Encoder(const Tokenizer &tokenizer);
  ~Encoder();
  Encoder(Encoder &&) noexcept;

  /// Appends the ids of `text` to `out`. Where tokens are bytes, text that is
  /// not valid UTF-8 is encoded byte by byte and decodes to the same bytes;
  /// other tokenizers see U+FFFD in its place. `first`: it begins the whole
  /// text, before which some tokenizers insert a space.
  void encode(std::string_view text, SpecialText special,
              std::vector<uint32_t> &out, bool first = true);
  std::vector<uint32_t> encode(std::string_view text,
                               SpecialText special = SpecialText::Parse);
  /// The same with the parts, in order; `text` is valid UTF-8.
  void encode(std::string_view text, SpecialText special,
              std::vector<uint32_t> &out, std::vector<TextPart> &parts);
  /// Appends the ids of text between two added tokens; `first`: it begins the
  /// whole text.
  void encodePart(std::string_view text, SpecialText special, bool first,
                  std::vector<uint32_t> &out) {
    encodePlain(text, special == SpecialText::Plain, first, out);
  }
  /// The same between the tokens that the post-processor adds to one sequence:
  /// a beginning-of-text token, or BERT's [CLS] and [SEP].
  std::vector<uint32_t> encodeFramed(std::string_view text,
                                     SpecialText special = SpecialText::Parse);
  /// Two sequences of ids as the post-processor frames them, which must be
  /// `hasPairs`. More than `most` ids are truncated by taking from the end of
  /// the longer one (longest_first of Hugging Face's tokenizers). Error: `most`
  /// leaves no room for either.
  StatusOr<TextPair> framePair(std::span<const uint32_t> first,
                               std::span<const uint32_t> second,
                               size_t most = SIZE_MAX) const;
  /// Truncates the result of encodeFramed to `most` tokens: the text loses its
  /// end, the suffix stays. False if `most` leaves no room for text.
  bool cutFramed(std::vector<uint32_t> &ids, size_t most) const;

private:
  void encodePlain(std::string_view text, bool plainSpecials, bool first,
                   std::vector<uint32_t> &out);
  void encodePiece(std::string_view piece, std::vector<uint32_t> &out);
  void encodeUncached(std::string_view piece, std::vector<uint32_t> &out);

  class PieceCache;
  const Tokenizer &tokenizer;
  std::variant<BpeMerger, UnigramSegmenter, const WordPieceModel *> model;
  std::unique_ptr<PieceCache> cache;
};

/// Longer pieces are split, so that memory stays bounded.
inline constexpr size_t maxPieceBytes = 16 << 20;

/// The bytes of a sequence of ids, which need not be valid UTF-8 where tokens
/// are bytes. Ids without a token are skipped.
std::string decodeBytes(const Tokenizer &tokenizer,
                        std::span<const uint32_t> ids,
                        bool skipSpecial = false);

/// The bytes that a token adds to a nonempty text; none for special tokens and
/// ids without a token.
std::string addedBytes(const Tokenizer &tokenizer, uint32_t id);

/// The text of a sequence of ids; what is not valid UTF-8 becomes U+FFFD.
std::string decode(const Tokenizer &tokenizer, std::span<const uint32_t> ids,
                   bool skipSpecial = false);

/// Decodes ids incrementally: each call returns the text that is certain by
/// then, always valid UTF-8; a character that spans several tokens appears with
/// the last of them. The tokenizer must outlive it.
class StreamDecoder {
public:
  explicit StreamDecoder(const Tokenizer &tokenizer, bool skipSpecial = false)
      : tokenizer(tokenizer), run(tokenizer.decoder), skipSpecial(skipSpecial) {
  }
  std::string push(uint32_t id);
  /// What was held back: a character that stays incomplete becomes U+FFFD.
  std::string finish();

private:
  const Tokenizer &tokenizer;
  DecoderRun run;
  bool skipSpecial;
  std::string held; // at most 3 bytes that begin a character
};

} // namespace tessera::tokenizer
