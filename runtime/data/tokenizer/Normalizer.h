// The normalizers of tokenizer.json: functions from text to text. Bytes that
// are not valid UTF-8 pass through all of them as they are.
#pragma once
#include "runtime/data/tokenizer/Unicode.h"
#include "runtime/data/tokenizer/regex/Regex.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tokenizer {

class Normalizer {
public:
  using Step = std::function<std::string(std::string_view)>;
  bool empty() const { return steps.empty(); }
  void add(Step step) { steps.push_back(std::move(step)); }
  std::string apply(std::string_view text) const;

private:
  std::vector<Step> steps;
};

/// Lower case, character by character: no final sigma, no language.
std::string lowercase(std::string_view text);
/// Without marks: all of category M, or only Mn.
std::string withoutMarks(std::string_view text, bool onlyNonspacing);
/// Without white space at the ends.
std::string stripped(std::string_view text, bool left, bool right);
/// With every match of `regex` replaced by `content`.
std::string replaced(std::string_view text, const Regex &regex,
                     std::string_view content);

/// BERT's normalization (J. Devlin et al., 2019).
struct BertNormalizerOptions {
  bool cleanText = true; // no control characters, white space is a space
  bool chineseCharacters = true; // spaces around each
  bool stripAccents = true;
  bool lowercase = true;
};
std::string bertNormalized(std::string_view text,
                           const BertNormalizerOptions &options);

/// SentencePiece's precompiled character map: a double array of UTF-8 keys (S.
/// Yata's Darts-clone) whose values are offsets of strings.
class CharacterMap {
public:
  /// `bytes`: u32 size of the array in bytes, the array (u32 units), strings
  /// that end in NUL; all little-endian.
  static StatusOr<CharacterMap> parse(std::string_view bytes);
  /// Replaces grapheme clusters of fewer than 6 bytes that begin with a key,
  /// and single characters elsewhere.
  std::string apply(std::string_view text) const;

private:
  /// What the shortest key at the beginning of `text` becomes.
  const char *find(std::string_view text) const;
  void appendCluster(std::string_view cluster, std::string &out) const;

  std::vector<uint32_t> units;
  std::string strings;
};

} // namespace tessera::tokenizer
