// Token shards: the tokenized corpus as memory-mapped files of plain integers.
//
// A shard is a 64-byte header and then `tokenCount` little-endian unsigned
// integers of `tokenBytes` (2 or 4) bytes, nothing after them:
//
//   offset  size  field
//        0     8  magic "TSRATOKS"
//        8     4  version, 1
//       12     4  tokenBytes: 2 where vocabSize <= 65536, else 4
//       16     8  tokenCount
//       24     8  documentCount (every document ends with the separator token)
//       32     8  vocabSize; every token is below it
//       40     8  tokenizerHash: XXH3-64 of the bytes of tokenizer.json
//       48     8  payloadHash: XXH3-64 of the integers' bytes
//       56     8  headerHash: XXH3-64 of the 56 bytes before it
//
// Shards live in a split's folder: TokenSplit.h.
#pragma once
#include "runtime/support/MappedFile.h"
#include "runtime/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tessera {

struct ShardHeader {
  uint32_t tokenBytes = 2;
  uint64_t tokenCount = 0;
  uint64_t documentCount = 0;
  uint64_t vocabSize = 0;
  uint64_t tokenizerHash = 0;
  uint64_t payloadHash = 0;
};

inline constexpr size_t shardHeaderSize = 64;
/// Tokens are handed out as int32.
inline constexpr uint64_t maxVocabSize = uint64_t{1} << 31;

/// Reads and proves the header of a shard whose whole file is `bytes`;
/// `where` names the file in errors. The payload is not looked at.
StatusOr<ShardHeader> parseShardHeader(std::span<const std::byte> bytes,
                                       const std::string &where);

/// One mapped shard. Copies share the mapping; reading is thread-safe.
class TokenShard {
public:
  /// Maps `path` and proves its header and its length.
  static StatusOr<TokenShard> open(const std::string &path);
  /// The same for a file that is already in memory.
  static StatusOr<TokenShard> fromFile(MappedFile file,
                                       const std::string &path);

  const ShardHeader &header() const { return head; }
  const std::string &path() const { return name; }
  uint64_t size() const { return head.tokenCount; }

  /// Copies tokens [begin, begin + out.size()) to `out`; the range must be
  /// within size(). Fails, naming the position, on a token that is not below
  /// the vocabulary's size. The pages read are released.
  Status read(uint64_t begin, std::span<int32_t> out) const;

  /// Reads the whole payload: proves its hash and that every token is below
  /// the vocabulary's size.
  Status verify() const;

private:
  TokenShard() = default;
  MappedFile file;
  ShardHeader head;
  std::string name;
};

/// What a shard is written from.
struct ShardContents {
  std::span<const uint32_t> tokens; // each below vocabSize
  uint64_t documents = 0;
  uint64_t vocabSize = 0;
  uint64_t tokenizerHash = 0;
};

/// Writes `folder`/`name` (temporary file, sync, rename); replaces a file of
/// that name.
Status writeTokenShard(const std::string &folder, const std::string &name,
                       const ShardContents &contents);

} // namespace tessera
