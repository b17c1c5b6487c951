// What a training program reads: a stream of tokens or rows of packed
// documents.
#pragma once
#include "runtime/data/PackedDataset.h"

#include <variant>

namespace tessera {

/// What a program requires of its data.
struct DataNeeds {
  int64_t vocabSize = 0, sequence = 0;
  DocumentInputs documents = {};
  PackedObjective objective = PackedObjective::Sft;
  /// That a sequence has, of pairs and of answers with a label.
  int64_t mostDocuments = 0;
  /// If documents.teacher > 0.
  double teacherTemperature = 1;
  bool prompts = false; ///< that come before what is learned
};

class TrainingData {
public:
  /// Opens a folder of either kind. Packed documents need a program that keeps
  /// them apart, and are of the objective that it has.
  static StatusOr<TrainingData> open(const std::string &folder,
                                     const DataNeeds &needs);

  int64_t sequence() const;
  uint64_t tokens() const; ///< of all documents
  /// Sequences, each seen once an epoch.
  uint64_t samplesPerEpoch() const;
  uint64_t tokenizerHash() const; ///< as in index.json
  /// As SplitIndex has it; 0: unknown.
  double unigramEntropy() const;

  /// As TokenDataset's.
  Status batch(uint64_t seed, uint64_t k, std::span<const uint64_t> rows,
               TokenBatchOut out) const;
  Status evalBatch(uint64_t index, uint64_t batches,
                   std::span<const uint64_t> rows, TokenBatchOut out) const;

private:
  using Data = std::variant<TokenDataset, PackedDataset>;
  explicit TrainingData(Data data) : data(std::move(data)) {}

  Data data;
};

} // namespace tessera
