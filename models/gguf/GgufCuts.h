// Pre-tokenizers of byte-level BPE, by llama.cpp's names.
#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::models {

/// The meaning of a value of `tokenizer.ggml.pre`.
struct GgufCut {
  enum class Pattern : uint8_t { Gpt2, Digits, Cl100k, Qwen2, Tekken, O200k };
  std::string_view name;
  Pattern pattern;
  bool nfc = false;           ///< the published tokenizer normalizes
  bool ignoresMerges = false; ///< words that are tokens are not merged
  bool begins = false;        ///< a start token is added by default
};

/// Null for unknown names.
const GgufCut *findGgufCut(std::string_view name);
/// "gpt-2, … or gpt-4o".
std::string ggufCutNames();

/// The corresponding parts of a tokenizer.json.
nlohmann::ordered_json preTokenizerOf(const GgufCut &cut);
nlohmann::ordered_json byteLevelPart(bool useRegex);

} // namespace tessera::models
