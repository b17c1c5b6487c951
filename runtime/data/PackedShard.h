// Packed rows: documents laid out in rows of a fixed number of positions, with
// what a loss and an attention need to know of them. A shard is two files:
//
//   NAME.tok     a token shard (TokenShard.h): the tokens of all documents, in
//                the order of the rows, without padding. Documents have no
//                separator.
//   NAME.rows    a 64-byte header, then
//                  rowCount + 1  × {u64 first token, u64 first document}
//                  documentCount × {u32 length, u16 kind, u16 source, u64 line}
//                  ⌈tokenCount / 8⌉ bytes: the loss mask, a bit a token from
//                  the lowest on; set: a model learns to predict this token
//
//   offset  size  field of NAME.rows, little-endian
//        0     8  magic "TSRAROWS"
//        8     4  version, 1
//       12     4  sequence: positions of a row
//       16     8  rowCount
//       24     8  documentCount
//       32     8  tokenCount
//       40     8  tokensHash: the payloadHash of NAME.tok
//       48     8  payloadHash: XXH3-64 of what follows the header
//       56     8  headerHash: XXH3-64 of the 56 bytes before it
//
// A document never crosses a row. The positions after a row's last document are
// padding, which is not stored.
#pragma once
#include "runtime/data/TokenShard.h"

#include <vector>

namespace tessera {

/// What a document is to the loss. Chosen and rejected answers to one prompt
/// are two documents that follow each other in one row. Mismatched: the prompt
/// of an answer with a label, and the answer to another prompt.
enum class DocumentKind : uint16_t {
  Plain,
  Chosen,
  Rejected,
  Desirable,
  Undesirable,
  Mismatched
};
inline constexpr uint16_t documentKinds = 6;

struct PackedDocument {
  uint32_t length = 0; ///< tokens, at least 1
  DocumentKind kind = DocumentKind::Plain;
  uint16_t source = 0; ///< number of the input file
  uint64_t line = 0;   ///< in that file, from 1
};

/// What NAME.rows says of itself.
struct PackedHeader {
  uint32_t sequence = 0;
  uint64_t rowCount = 0;
  uint64_t documentCount = 0;
  uint64_t tokenCount = 0;
  uint64_t tokensHash = 0;
  uint64_t payloadHash = 0;
};

inline constexpr uint32_t maxPackedSequence = 1 << 24;

/// Reads and proves the header of a file whose bytes are `bytes`; `where` names
/// it in errors. The payload is not looked at.
StatusOr<PackedHeader> parsePackedHeader(std::span<const std::byte> bytes,
                                         const std::string &where);

/// The contents of one row, without padding.
struct PackedRowContents {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> supervised; ///< 0 or 1 for each token
  std::vector<PackedDocument> documents;
};

/// Two mapped files. Copies share the mappings; reading is thread-safe.
class PackedShard {
public:
  /// Opens `folder`/`name`.tok and .rows, which must belong together.
  static StatusOr<PackedShard> open(const std::string &folder,
                                    const std::string &name);
  /// The same for files that are already in memory.
  static StatusOr<PackedShard> fromFiles(TokenShard tokens, MappedFile rows,
                                         const std::string &path);

  const PackedHeader &header() const { return head; }
  const TokenShard &tokens() const { return tokenShard; }
  uint64_t rows() const { return head.rowCount; }

  /// Reads row `row` < rows(). Fails, naming the row, where the tables are
  /// damaged: nothing beyond this row is trusted.
  Status read(uint64_t row, PackedRowContents &out) const;

  /// The number in the shard of the first token of row `row` < rows().
  StatusOr<uint64_t> firstToken(uint64_t row) const;
  /// The largest number of documents in a row.
  StatusOr<uint64_t> mostDocuments() const;

  /// Verifies the hashes, every token and every row.
  Status verify() const;

private:
  PackedShard(TokenShard tokens, MappedFile rows, const PackedHeader &head,
              std::string name)
      : tokenShard(std::move(tokens)), file(std::move(rows)), head(head),
        name(std::move(name)) {}
  /// Bytes of an array of `count` at `offset`.
  template <typename T>
  Status copy(uint64_t offset, uint64_t count, std::vector<T> &out) const;
  Status readMask(uint64_t firstToken, uint64_t count,
                  std::vector<uint8_t> &out) const;

  TokenShard tokenShard;
  MappedFile file;
  PackedHeader head;
  std::string name;
};

/// What a shard is written from.
struct PackedShardContents {
  uint32_t sequence = 0;
  uint64_t vocabSize = 0, tokenizerHash = 0;
  std::vector<uint32_t> tokens;
  std::vector<uint8_t> supervised; ///< 0 or 1 for each token
  std::vector<PackedDocument> documents;
  std::vector<uint32_t> rowDocuments; ///< documents of each row
};

/// Writes the files `folder`/`name`.tok and .rows.
Status writePackedShard(const std::string &folder, const std::string &name,
                        const PackedShardContents &contents);

} // namespace tessera
