#include "runtime/generate/ReferenceScores.h"
#include "runtime/data/FileOperations.h"
#include "runtime/data/ReferenceShard.h"
#include "runtime/infer/TokenScores.h"

#include <algorithm>
#include <cmath>

namespace tessera {

/// Documents that are scored between two reports.
constexpr std::size_t together = 64;

namespace {
/// Scores the documents of one shard, some at a time.
class ShardScorer {
public:
  ShardScorer(PagedModel &model, const PackedShard &shard)
      : model(model), shard(shard), scores(shard.header().tokenCount) {}

  Status run(const std::function<void(uint64_t)> &scored) {
    PackedRowContents row;
    for (uint64_t i = 0; i < shard.rows(); ++i) {
      TESSERA_RETURN_IF_ERROR(shard.read(i, row));
      std::size_t at = 0;
      for (const PackedDocument &document : row.documents) {
        const auto begin = row.tokens.begin() + long(at);
        documents.push_back(
            {firstToken + at, {begin, begin + long(document.length)}});
        at += document.length;
      }
      firstToken += at;
      if (documents.size() >= together || i + 1 == shard.rows()) {
        TESSERA_RETURN_IF_ERROR(score());
        if (!isFinite)
          return Status::error("row {}: the model gives a token no finite "
                               "log-probability; check its weights, or "
                               "compute in fp32",
                               i);
        scored(documents.size());
        documents.clear();
      }
    }
    return Status::success();
  }
  std::span<const float> result() const { return scores; }

private:
  struct Document {
    uint64_t first; ///< token of the shard
    std::vector<int32_t> tokens;
  };

  Status score() {
    std::vector<std::span<const int32_t>> tokens;
    for (const Document &each : documents)
      tokens.emplace_back(each.tokens);
    return scoreTokens(model, tokens,
                       [&](std::size_t document, int64_t at, double logProb) {
                         isFinite &= std::isfinite(logProb);
                         // A rounded 0 may be above it.
                         scores[documents[document].first + uint64_t(at)] =
                             float(std::min(logProb, 0.0));
                       });
  }

  PagedModel &model;
  const PackedShard &shard;
  std::vector<float> scores;
  std::vector<Document> documents;
  uint64_t firstToken = 0;
  bool isFinite = true;
};
} // namespace

Status
scoreReference(const std::string &folder, PagedModel &model,
               const std::function<void(const ReferenceProgress &)> &report) {
  auto index = readPackedIndex(folder);
  if (!index.ok())
    return index.status();
  if (index->vocabSize > uint64_t(model.shape().vocab))
    return Status::error("'{}' has tokens of a vocabulary of {}, the model has "
                         "{}; give a model with the dataset's tokenizer",
                         folder, index->vocabSize, model.shape().vocab);
  // Never those of two models at a time.
  for (const PackedIndex::Shard &listed : index->shards)
    TESSERA_RETURN_IF_ERROR(removeReferenceShard(folder, listed.file));
  ReferenceProgress progress{0, index->documents};
  for (const PackedIndex::Shard &listed : index->shards) {
    auto shard = PackedShard::open(folder, listed.file);
    if (!shard.ok())
      return shard.status();
    ShardScorer scorer(model, *shard);
    TESSERA_RETURN_IF_ERROR(scorer.run([&](uint64_t documents) {
      progress.documents += documents;
      report(progress);
    }));
    TESSERA_RETURN_IF_ERROR(writeReferenceShard(
        folder, listed.file, shard->header(), scorer.result()));
  }
  return Status::success();
}

} // namespace tessera
