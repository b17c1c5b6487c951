// tokenizer.json as `tokenizers` writes it, with the merges in the form that
// its old and new releases both read.
#include "runtime/data/tokenizer/BpeTrainer.h"
#include "runtime/data/tokenizer/ByteAlphabet.h"

#include <nlohmann/json.hpp>

namespace tessera::tokenizer {

using Json = nlohmann::ordered_json;

/// A JSON string; `text` that is not UTF-8 has its bad bytes replaced.
static std::string jsonString(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

static Json byteLevel(bool prefixSpace, bool useRegex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", prefixSpace},
          {"trim_offsets", true},
          {"use_regex", useRegex}};
}

static Json preTokenizer(SplitPattern pattern) {
  std::string_view regex = splitPatternRegex(pattern);
  if (pattern == SplitPattern::Gpt2 || pattern == SplitPattern::Whole)
    return byteLevel(/*prefixSpace=*/false, pattern == SplitPattern::Gpt2);
  Json split = {{"type", "Split"},
                {"pattern", {{"Regex", regex}}},
                {"behavior", "Isolated"},
                {"invert", false}};
  return {{"type", "Sequence"},
          {"pretokenizers",
           Json::array({split, byteLevel(false, /*useRegex=*/false)})}};
}

static std::string addedTokens(const TrainedBpe &trained) {
  Json tokens = Json::array();
  for (size_t id = 0; id < trained.options.specialTokens.size(); ++id)
    tokens.push_back({{"id", id},
                      {"content", trained.tokens[id]},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", true}});
  return tokens.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string tokenizerJson(const TrainedBpe &trained) {
  size_t specials = trained.options.specialTokens.size();
  std::vector<std::string> visible(trained.tokens.size());
  for (size_t id = 0; id < visible.size(); ++id)
    visible[id] = id < specials ? trained.tokens[id]
                                : visibleFromBytes(trained.tokens[id]);
  // Vocabulary and merges by hand, one a line: an ordered JSON object of
  // nlohmann's is a list, in which adding n members takes n² steps.
  std::string vocabulary, merges;
  for (size_t id = 0; id < visible.size(); ++id)
    vocabulary += fmt::format("{}\n      {}: {}", id == 0 ? "" : ",",
                              jsonString(visible[id]), id);
  for (size_t rank = 0; rank < trained.merges.size(); ++rank) {
    auto [left, right] = trained.merges[rank];
    merges += fmt::format("{}\n      {}", rank == 0 ? "" : ",",
                          jsonString(visible[left] + " " + visible[right]));
  }
  return fmt::format(
      R"({{
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": {},
  "normalizer": null,
  "pre_tokenizer": {},
  "post_processor": null,
  "decoder": {},
  "model": {{
    "type": "BPE",
    "dropout": null,
    "unk_token": null,
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,
    "fuse_unk": false,
    "byte_fallback": false,
    "ignore_merges": false,
    "vocab": {{{}
    }},
    "merges": [{}
    ]
  }}
}}
)",
      addedTokens(trained), preTokenizer(trained.options.pattern).dump(),
      byteLevel(/*prefixSpace=*/true, /*useRegex=*/true).dump(), vocabulary,
      merges);
}

} // namespace tessera::tokenizer
