// A tokenizer without merges: a token for each of a few letters.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"

#include <string>

namespace tessera::testing {

/// `vocab` has members such as `"a": 0`, `added` objects of tokenizer.json's
/// `added_tokens`; both without brackets.
inline StatusOr<tokenizer::Tokenizer>
lettersTokenizer(const std::string &vocab, const std::string &added = "") {
  return tokenizer::Tokenizer::parse(
      R"({"added_tokens": [)" + added +
          R"(], "normalizer": null, "post_processor": null,
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false,
                        "trim_offsets": true, "use_regex": true},
      "decoder": {"type": "ByteLevel", "add_prefix_space": false,
                  "trim_offsets": true, "use_regex": true},
      "model": {"type": "BPE", "dropout": null, "unk_token": null,
                "continuing_subword_prefix": null, "end_of_word_suffix": null,
                "fuse_unk": false, "byte_fallback": false, "vocab": {)" +
          vocab + R"(}, "merges": []}})",
      "letters");
}

} // namespace tessera::testing
