// Learning byte-pair merges from word counts: again and again the most frequent
// adjacent pair becomes a token (Sennrich et al. 2016). Counts are kept up to
// date by the words that a merge changes, never recounted.
//
// The result is that of `tokenizers`' BpeTrainer with ByteLevel.alphabet() as
// initial alphabet: special tokens take the first ids, then the 256 bytes in
// the order of their visible characters, then the merges; of pairs that are
// equally frequent the one with the smaller ids goes first. It does not depend
// on the number of threads or the order of documents.
#pragma once
#include "runtime/data/tokenizer/WordCounter.h"
#include "runtime/support/Status.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera::tokenizer {

struct TrainOptions {
  uint32_t vocabSize = 32768; // special tokens and the 256 bytes included
  uint64_t minFrequency = 2;  // a rarer pair is not merged
  SplitPattern pattern = SplitPattern::Gpt2;
  std::vector<std::string> specialTokens = {"<|endoftext|>"};
};

struct TrainedBpe {
  std::vector<std::string> tokens; // bytes by id; special tokens' own text
  std::vector<std::pair<uint32_t, uint32_t>> merges; // by rank
  TrainOptions options;
};

/// Learns until the vocabulary is full or no pair is frequent enough: the
/// result may hold fewer than options.vocabSize tokens.
StatusOr<TrainedBpe> trainBpe(const WordTable &words,
                              const TrainOptions &options);

/// The tokenizer as the text of a tokenizer.json.
std::string tokenizerJson(const TrainedBpe &trained);

} // namespace tessera::tokenizer
