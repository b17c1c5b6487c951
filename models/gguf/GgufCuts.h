// How byte-level tokenizers cut texts, by the names that llama.cpp has for it.
#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::models {

/// What a value of `tokenizer.ggml.pre` stands for.
struct GgufCut {
  enum class Pattern : uint8_t { Gpt2, Digits, Cl100k, Qwen2, Tekken, O200k };
  std::string_view name;
  Pattern pattern;
  bool nfc = false;           ///< the published tokenizer normalizes
  bool ignoresMerges = false; ///< words that are tokens are not merged
  bool begins = false; ///< a token begins texts unless the file says otherwise
};

/// Null for names that are not known.
const GgufCut *findGgufCut(std::string_view name);
/// "gpt-2, … or gpt-4o".
std::string ggufCutNames();

/// As parts of a tokenizer.json.
nlohmann::ordered_json preTokenizerOf(const GgufCut &cut);
nlohmann::ordered_json byteLevelPart(bool useRegex);

} // namespace tessera::models
