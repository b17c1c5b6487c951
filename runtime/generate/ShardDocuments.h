// Packed documents that a model reads, each alone, to store what it says of
// their tokens next to them.
#pragma once
#include "runtime/data/PackedIndex.h"
#include "runtime/data/PackedShard.h"
#include "runtime/infer/PagedModel.h"

#include <functional>

namespace tessera {

struct ShardDocument {
  uint64_t first = 0; ///< token of the shard
  uint64_t row = 0;
  std::vector<int32_t> tokens;
  int64_t prompt = 0; ///< tokens before the first that is learned
};

/// Tokens of each, and of their prompts, as they are scored.
struct ScoredDocuments {
  explicit ScoredDocuments(std::span<const ShardDocument> documents);
  std::vector<std::span<const int32_t>> tokens;
  std::vector<int64_t> prompts;
};

struct DocumentProgress {
  uint64_t documents = 0, ofDocuments = 0;
};
using ReportDocuments = std::function<void(const DocumentProgress &)>;

/// What is done with the shards of a folder.
class DocumentPass {
public:
  virtual ~DocumentPass() = default;
  /// Removes what an earlier pass wrote for a shard.
  virtual Status remove(const std::string &shard) = 0;
  virtual Status begin(const std::string &shard, const PackedShard &of) = 0;
  /// Some documents of the shard, in the order of its tokens.
  virtual Status read(std::span<const ShardDocument> documents) = 0;
  virtual Status finish() = 0;
};

/// Removes what earlier passes wrote, of all shards, and then reads one shard
/// after the other: after an error some have nothing. `report` is called now
/// and then. Refuses tokens outside the model's vocabulary.
Status readDocuments(const std::string &folder, const DecoderShape &model,
                     DocumentPass &pass, const ReportDocuments &report);

/// Of a pass whose model gave a token no finite log-probability.
Status noFiniteScores(std::span<const ShardDocument> documents);

} // namespace tessera
