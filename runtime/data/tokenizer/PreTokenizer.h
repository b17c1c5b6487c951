// Cutting text into the pieces that a model encodes one by one: the
// pre-tokenizers of tokenizer.json, one step after another. Nearly all of them
// are regular expressions with a word on what becomes of the matches.
#pragma once
#include "runtime/data/tokenizer/regex/Regex.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tokenizer {

/// The splitting patterns that `tessera data tokenizer` trains with.
enum class SplitPattern : uint8_t {
  Whole,  // the text is one piece
  Gpt2,   // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| …
  Cl100k, // Llama 3 and tiktoken's cl100k_base: numbers by three digits
  Qwen2,  // as Cl100k, but numbers by one digit
};

/// The regular expression of `pattern`; empty for Whole.
std::string_view splitPatternRegex(SplitPattern pattern);
/// The same, compiled at first use; `pattern` is not Whole. It matches every
/// character: bytes that are not valid UTF-8 are characters that are neither
/// letter, number nor space.
const std::shared_ptr<const Regex> &splitPatternAutomaton(SplitPattern pattern);

/// What becomes of the matches of a Split.
enum class SplitBehavior : uint8_t {
  Isolated,           // each match and each stretch between is a piece
  Removed,            // stretches between matches are pieces
  Contiguous,         // as Isolated, but neighbouring matches are one piece
  MergedWithPrevious, // a match ends the piece before it
  MergedWithNext,     // a match begins the piece after it
};

/// Whether a Metaspace step puts its mark before a text that has none.
enum class PrependScheme : uint8_t { Always, First, Never };

struct PreTokenizerStep {
  enum class Kind : uint8_t { Split, ByteLevel, Metaspace };
  Kind kind = Kind::Split;
  // Split; ByteLevel: null for none.
  std::shared_ptr<const Regex> regex;
  SplitBehavior behavior = SplitBehavior::Isolated;
  bool invert = false; // what is between matches counts as the matches
  // ByteLevel
  bool prefixSpace = false; // before a text that does not begin with one
  bool visible = true;      // bytes become their visible characters
  // Metaspace
  std::string mark; // represents a space
  PrependScheme prepend = PrependScheme::Always;
  bool split = true; // before every mark
};

class PreTokenizer {
public:
  using Sink = std::function<void(std::string_view)>;
  std::vector<PreTokenizerStep> steps; // at most 32

  /// Hands the pieces of `text` to `sink`; a piece is not empty and lives as
  /// long as the call. `first`: nothing was before this text.
  void split(std::string_view text, bool first, const Sink &sink) const {
    run(0, text, first, sink);
  }

private:
  void run(size_t step, std::string_view text, bool first,
           const Sink &sink) const;
  void runSplit(size_t step, std::string_view text, bool first,
                const Sink &sink) const;
  void runByteLevel(size_t step, std::string_view text, bool first,
                    const Sink &sink) const;
  void runMetaspace(size_t step, std::string_view text, bool first,
                    const Sink &sink) const;
};

} // namespace tessera::tokenizer
