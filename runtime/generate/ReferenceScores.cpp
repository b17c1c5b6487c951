#include "runtime/generate/ReferenceScores.h"
#include "runtime/data/ReferenceShard.h"
#include "runtime/infer/TokenScores.h"

#include <algorithm>
#include <cmath>

namespace tessera {

namespace {
class ReferencePass final : public DocumentPass {
public:
  ReferencePass(std::string folder, PagedModel &model)
      : folder(std::move(folder)), model(model) {}

  Status remove(const std::string &shard) override {
    return removeReferenceShard(folder, shard);
  }
  Status begin(const std::string &shard, const PackedShard &of) override {
    name = shard;
    header = of.header();
    scores.assign(header.tokenCount, 0.0f);
    return Status::success();
  }
  Status read(std::span<const ShardDocument> documents) override;
  Status finish() override {
    return writeReferenceShard(folder, name, header, scores,
                               model.shape().hasWholePrompts);
  }

private:
  const std::string folder;
  PagedModel &model;
  std::string name; ///< of the shard
  PackedHeader header;
  std::vector<float> scores;
};
} // namespace

Status ReferencePass::read(std::span<const ShardDocument> documents) {
  const ScoredDocuments scored(documents);
  bool isFinite = true;
  TESSERA_RETURN_IF_ERROR(scoreTokens(
      model, scored.tokens,
      [&](std::size_t document, int64_t at, double logProb) {
        isFinite &= std::isfinite(logProb);
        // A rounded 0 may be above it.
        scores[documents[document].first + uint64_t(at)] =
            float(std::min(logProb, 0.0));
      },
      scored.prompts));
  return isFinite ? Status::success() : noFiniteScores(documents);
}

Status scoreReference(const std::string &folder, PagedModel &model,
                      const ReportDocuments &report) {
  ReferencePass pass(folder, model);
  return readDocuments(folder, model.shape(), pass, report);
}

} // namespace tessera
