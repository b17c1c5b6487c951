// A split of the tokenized corpus: a folder of token shards with an index.json
// that lists them. A token directory holds tokenizer.json and the splits
// train/ and eval/. The index is written last, so a folder without one was not
// finished.
//
//   {"format": "tessera-tokens", "version": 1, "vocab_size": 4096,
//    "tokenizer_hash": "00c5…16 hex digits", "tokens": 123, "documents": 4,
//    "text_bytes": 456, "separator": 0, "unigram_entropy": 6.02,
//    "shards": [{"file": "shard-00000.tok", "tokens": 123, "documents": 4}]}
#pragma once
#include "runtime/data/TokenShard.h"

#include <string_view>
#include <vector>

namespace tessera {

/// What index.json of a split says.
struct SplitIndex {
  struct Shard {
    std::string file; // a plain name within the split's folder
    uint64_t tokens = 0;
    uint64_t documents = 0;
  };
  uint64_t vocabSize = 0;
  uint64_t tokenizerHash = 0;
  uint64_t tokens = 0; // the separators included
  uint64_t documents = 0;
  uint64_t textBytes = 0; // of the documents before tokenization
  uint32_t separator = 0; // the token that ends every document
  /// Entropy of the split's own token frequencies, nats a token: the loss of
  /// the best model that knows the frequencies and nothing of the context.
  double unigramEntropy = 0;
  std::vector<Shard> shards;
};

/// Parses index.json; `where` names it in errors.
StatusOr<SplitIndex> parseSplitIndex(std::string_view json,
                                     const std::string &where);

/// Writes `folder`/index.json in one step.
Status writeSplitIndex(const SplitIndex &index, const std::string &folder);

/// All shards of one split, in the index's order.
struct TokenSplit {
  SplitIndex index;
  std::vector<TokenShard> shards;

  /// Opens a split's folder, e.g. "tokens/train". A shard that disagrees with
  /// the index in tokens, documents, vocabulary or tokenizer is refused.
  static StatusOr<TokenSplit> open(const std::string &folder);
};

} // namespace tessera
