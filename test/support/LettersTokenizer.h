// A tokenizer without merges: a token for each of a few letters.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"

#include <string>

namespace tessera::testing {

/// The text of a tokenizer.json. `vocab` has members such as `"a": 0`, `added`
/// objects of `added_tokens`; both without brackets.
inline std::string lettersTokenizerJson(const std::string &vocab,
                                        const std::string &added = "") {
  return R"({"added_tokens": [)" + added +
         R"(], "normalizer": null, "post_processor": null,
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false,
                        "trim_offsets": true, "use_regex": true},
      "decoder": {"type": "ByteLevel", "add_prefix_space": false,
                  "trim_offsets": true, "use_regex": true},
      "model": {"type": "BPE", "dropout": null, "unk_token": null,
                "continuing_subword_prefix": null, "end_of_word_suffix": null,
                "fuse_unk": false, "byte_fallback": false, "vocab": {)" +
         vocab + R"(}, "merges": []}})";
}

inline StatusOr<tokenizer::Tokenizer>
lettersTokenizer(const std::string &vocab, const std::string &added = "") {
  return tokenizer::Tokenizer::parse(lettersTokenizerJson(vocab, added),
                                     "letters");
}

} // namespace tessera::testing
