// Training rows out of a folder of packed documents, in an order that is a pure
// function: sample k = f(seed, k). As with TokenDataset, the state of the data
// pipeline is one integer, the same for any number of microbatches, ranks or
// restarts.
#pragma once
#include "runtime/data/PackedIndex.h"
#include "runtime/data/ReferenceShard.h"
#include "runtime/data/TeacherShard.h"
#include "runtime/data/TokenDataset.h"

namespace tessera {

/// One row, or several after each other, as model inputs; T positions a row.
/// An empty span is not wanted.
struct PackedRowSpans {
  std::span<int32_t> tokens = {}; ///< padding: the index's padding_token
  /// The next token of the same document where a model learns to predict it;
  /// elsewhere, so at a document's last token and in padding, ignoredTarget.
  std::span<int32_t> targets = {};
  std::span<int32_t> lossMask = {}; ///< 1 where `targets` is a token, else 0
  /// The number of the document in its row, from 0; ignoredTarget in padding.
  std::span<int32_t> segments = {};
  std::span<int32_t> positions = {}; ///< from 0 in each document and in padding
  /// 1 in desirable documents, -1 in undesirable ones, 0 in others and in
  /// padding.
  std::span<int32_t> labels = {};
  /// The log-probability of the target by the reference model
  /// (openReference()), 0 at other positions.
  std::span<float> reference = {};
  /// Of each position the K most probable targets by a teacher (openTeacher()),
  /// and K + 1 log-probabilities (TokenBatch.h); ignoredTarget and 0 where
  /// `targets` is not a token.
  std::span<int32_t> teacherTokens = {};
  std::span<float> teacherLogProbs = {};

  /// Row `number` of these.
  PackedRowSpans row(uint64_t number, uint64_t sequence) const;
};

/// A document of a row.
struct PlacedDocument {
  uint32_t begin = 0; ///< position in the row
  PackedDocument document;
};

/// What a teacher says of the tokens of a row, one after the other.
struct TeacherRow {
  std::size_t top = 0;
  std::vector<int32_t> tokens; ///< [tokens, top]
  std::vector<float> logProbs; ///< [tokens, top + 1]
};

class PackedDataset {
public:
  /// Opens `folder` for a model of `vocabSize` tokens and rows of `sequence`
  /// positions. Refuses rows of another length, and tokens of a larger
  /// vocabulary.
  static StatusOr<PackedDataset> open(const std::string &folder,
                                      int64_t vocabSize, int64_t sequence);
  /// Opens the log-probabilities of a reference model, which all shards must
  /// have, of prompts whose tokens saw each other or did not.
  Status openReference(bool hasWholePrompts = false);
  /// Opens the distributions of a teacher, which all shards must have: at that
  /// temperature, of that vocabulary and of `top` tokens or more.
  Status openTeacher(const TeacherFacts &needs);

  int64_t sequence() const { return int64_t(listed.sequence); }
  /// Rows, each seen once an epoch.
  uint64_t rows() const { return listed.rows; }
  const PackedIndex &index() const { return listed; }
  /// The largest number of documents in a row.
  StatusOr<uint64_t> mostDocuments() const;

  /// Row `number` < rows() in the order of the files.
  Status row(uint64_t number, const PackedRowSpans &out) const;
  /// Its documents; of a preference pair the chosen one is followed by the
  /// rejected one.
  Status documents(uint64_t number, std::vector<PlacedDocument> &out) const;

  /// Whether any document is of that kind.
  StatusOr<bool> has(DocumentKind kind) const;

  /// The row that is sample k of the endless shuffled stream. Epoch k / rows()
  /// has its own permutation.
  uint64_t rowOf(uint64_t seed, uint64_t k) const;

  /// Samples k, k + 1, … as [rows, T] arrays. Only `rows` (their numbers) are
  /// read and written.
  Status batch(uint64_t seed, uint64_t k, std::span<const uint64_t> rows,
               const PackedRowSpans &out) const;

  /// Batch `index` of a fixed evaluation of `batches` batches of `batchRows`
  /// rows, spread evenly over the dataset whatever the seed. If the dataset has
  /// too few rows, those left over repeat row 0 with every target ignored. Only
  /// `rows` are read and written.
  Status evalBatch(uint64_t index, uint64_t batches, uint64_t batchRows,
                   std::span<const uint64_t> rows,
                   const PackedRowSpans &out) const;

private:
  Status contents(uint64_t number, PackedRowContents &out) const;
  std::size_t shardOf(uint64_t row) const;
  Status readReference(uint64_t number, std::size_t tokens,
                       std::vector<float> &out) const;
  Status readTeacher(uint64_t number, std::size_t tokens, std::size_t top,
                     TeacherRow &out) const;
  Status noTeacher(uint64_t number, std::size_t token) const;

  std::string folder;
  PackedIndex listed;
  std::vector<PackedShard> shards;
  std::vector<ReferenceShard> references; ///< none, or one a shard
  std::vector<uint64_t> shardBegins;      ///< first row of each shard
  std::vector<TeacherShard> teachers;     ///< none, or one a shard
};

} // namespace tessera
