// Names: llama-vocab.cpp of ggml-org/llama.cpp. The regular expressions are
// those of the published models' tokenizer.json.
#include "models/gguf/GgufCuts.h"
#include "runtime/data/tokenizer/PreTokenizer.h"
#include "runtime/support/Text.h"

#include <vector>

namespace tessera::models {

using Json = nlohmann::ordered_json;
using Pattern = GgufCut::Pattern;
using tokenizer::SplitPattern;

namespace {

constexpr GgufCut cuts[] = {{"gpt-2", Pattern::Gpt2},
                            {"phi-2", Pattern::Gpt2},
                            {"smollm", Pattern::Digits},
                            {"starcoder", Pattern::Digits},
                            {"refact", Pattern::Digits},
                            {"codeshell", Pattern::Digits},
                            {"llama-bpe", Pattern::Cl100k, false, true, true},
                            {"llama3", Pattern::Cl100k, false, true, true},
                            {"llama-v3", Pattern::Cl100k, false, true, true},
                            {"falcon3", Pattern::Cl100k, false, true, true},
                            {"smaug-bpe", Pattern::Cl100k},
                            {"dbrx", Pattern::Cl100k},
                            {"qwen2", Pattern::Qwen2, true},
                            {"deepseek-r1-qwen", Pattern::Qwen2},
                            {"tekken", Pattern::Tekken, false, true, true},
                            {"gpt-4o", Pattern::O200k}};

#define UPPER "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define ENDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
constexpr std::string_view kTekken = UPPER "*" LOWER "+|" UPPER "+" LOWER
                                           "*|\\p{N}" REST,
                           kO200k = UPPER "*" LOWER "+" ENDS "|" UPPER "+" LOWER
                                          "*" ENDS "|\\p{N}{1,3}" REST;
#undef UPPER
#undef LOWER
#undef ENDS
#undef REST

std::string_view regexOf(Pattern pattern) {
  switch (pattern) {
  case Pattern::Cl100k:
    return tokenizer::splitPatternRegex(SplitPattern::Cl100k);
  case Pattern::Qwen2:
    return tokenizer::splitPatternRegex(SplitPattern::Qwen2);
  case Pattern::Tekken:
    return kTekken;
  case Pattern::O200k:
    return kO200k;
  case Pattern::Gpt2:
  case Pattern::Digits:
    break;
  }
  return {}; // built into ByteLevel
}

} // namespace

Json byteLevelPart(bool useRegex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", useRegex}};
}

Json preTokenizerOf(const GgufCut &cut) {
  if (cut.pattern == Pattern::Gpt2)
    return byteLevelPart(true);
  bool digits = cut.pattern == Pattern::Digits;
  Json first = {{"type", "Digits"}, {"individual_digits", true}};
  if (!digits)
    first = {{"type", "Split"},
             {"pattern", {{"Regex", regexOf(cut.pattern)}}},
             {"behavior", "Isolated"},
             {"invert", false}};
  return {{"type", "Sequence"},
          {"pretokenizers", {first, byteLevelPart(/*useRegex=*/digits)}}};
}

const GgufCut *findGgufCut(std::string_view name) {
  for (const GgufCut &each : cuts)
    if (each.name == name)
      return &each;
  return nullptr;
}

std::string ggufCutNames() {
  std::vector<std::string_view> names;
  for (const GgufCut &each : cuts)
    names.push_back(each.name);
  return choices(names);
}

} // namespace tessera::models
