// From documents to a folder of token shards (runtime/data/TokenSplit.h).
#pragma once
#include "runtime/data/TokenSplit.h"
#include "runtime/data/tokenizer/Tokenizer.h"

#include <optional>
#include <string>
#include <vector>

namespace tessera::tokenizer {

struct CorpusOptions {
  std::string tokenizerPath;
  std::vector<std::string> trainInputs; // see Documents.h
  std::vector<std::string> evalInputs;  // may be empty: then no eval/
  std::string out;                      // the token directory
  /// The added token that ends a document; the tokenizer's own if not given.
  std::optional<std::string> separator;
  uint64_t shardTokens = 32 << 20; // in every shard but the last
  unsigned threads = 1;            // changes nothing but the time
  bool replace = false;            // overwrite existing tokens in `out`
};

struct CorpusResult {
  SplitIndex train;
  std::optional<SplitIndex> eval;
};

/// Writes out/tokenizer.json (a copy), out/train/ and out/eval/. Text that
/// spells a special token stays text, so that only this function ends
/// documents. On an error what was written has no index and is not read.
StatusOr<CorpusResult> tokenizeCorpus(const CorpusOptions &options);

/// Entropy in nats of the distribution with these counts: −Σ p ln p.
double unigramEntropy(std::span<const uint64_t> counts);

} // namespace tessera::tokenizer
