#include "runtime/generate/ShardDocuments.h"

#include <algorithm>

namespace tessera {

ScoredDocuments::ScoredDocuments(std::span<const ShardDocument> documents) {
  for (const ShardDocument &each : documents) {
    tokens.emplace_back(each.tokens);
    prompts.push_back(each.prompt);
  }
}

/// Documents that are read between two reports.
constexpr std::size_t together = 64;

static void append(std::vector<ShardDocument> &documents,
                   const PackedRowContents &row, uint64_t number,
                   uint64_t &firstToken) {
  std::size_t at = 0;
  for (const PackedDocument &document : row.documents) {
    const auto begin = row.tokens.begin() + long(at);
    // A first token that is learned has nothing to be predicted from.
    const auto learned =
        std::find(row.supervised.begin() + long(at) + 1,
                  row.supervised.begin() + long(at + document.length), 1);
    documents.push_back({firstToken + at,
                         number,
                         {begin, begin + long(document.length)},
                         learned - row.supervised.begin() - long(at)});
    at += document.length;
  }
  firstToken += at;
}

static Status readShard(const PackedShard &shard, DocumentPass &pass,
                        const std::function<void(uint64_t)> &done) {
  PackedRowContents row;
  std::vector<ShardDocument> documents;
  uint64_t firstToken = 0;
  for (uint64_t i = 0; i < shard.rows(); ++i) {
    TESSERA_RETURN_IF_ERROR(shard.read(i, row));
    append(documents, row, i, firstToken);
    if (documents.size() < together && i + 1 < shard.rows())
      continue;
    TESSERA_RETURN_IF_ERROR(pass.read(documents));
    done(documents.size());
    documents.clear();
  }
  return Status::success();
}

Status readDocuments(const std::string &folder, const DecoderShape &model,
                     DocumentPass &pass, const ReportDocuments &report) {
  auto index = readPackedIndex(folder);
  if (!index.ok())
    return index.status();
  if (index->vocabSize > uint64_t(model.vocab))
    return Status::error("'{}' has tokens of a vocabulary of {}, the model has "
                         "{}; give a model with the dataset's tokenizer",
                         folder, index->vocabSize, model.vocab);
  // Never those of two models at a time.
  for (const PackedIndex::Shard &listed : index->shards)
    TESSERA_RETURN_IF_ERROR(pass.remove(listed.file));
  DocumentProgress progress{0, index->documents};
  for (const PackedIndex::Shard &listed : index->shards) {
    auto shard = PackedShard::open(folder, listed.file);
    if (!shard.ok())
      return shard.status();
    TESSERA_RETURN_IF_ERROR(pass.begin(listed.file, *shard));
    TESSERA_RETURN_IF_ERROR(readShard(*shard, pass, [&](uint64_t documents) {
      progress.documents += documents;
      report(progress);
    }));
    TESSERA_RETURN_IF_ERROR(pass.finish());
  }
  return Status::success();
}

Status noFiniteScores(std::span<const ShardDocument> documents) {
  return Status::error("rows {} to {}: the model gives a token no finite "
                       "log-probability; check its weights, or compute in fp32",
                       documents.front().row, documents.back().row);
}

} // namespace tessera
