#include "runtime/data/TokenShard.h"
#include "runtime/data/FileOperations.h"
#include "runtime/support/Hash.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

namespace tessera {

static_assert(std::endian::native == std::endian::little,
              "shards are read in place, so the machine is little-endian");

namespace {
/// The header's layout in the file.
struct RawHeader {
  char magic[8];
  uint32_t version;
  uint32_t tokenBytes;
  uint64_t tokenCount;
  uint64_t documentCount;
  uint64_t vocabSize;
  uint64_t tokenizerHash;
  uint64_t payloadHash;
  uint64_t headerHash;
};
static_assert(sizeof(RawHeader) == shardHeaderSize);
} // namespace

static constexpr char shardMagic[8] = {'T', 'S', 'R', 'A', 'T', 'O', 'K', 'S'};
static constexpr uint32_t shardVersion = 1;
static constexpr const char *rebuildAdvice =
    "write it again with `tessera data tokenize`";

static uint64_t hashHeader(const RawHeader &raw) {
  return hash64(
      std::as_bytes(std::span(&raw, 1)).first(offsetof(RawHeader, headerHash)));
}

static uint32_t tokenBytesFor(uint64_t vocabSize) {
  return vocabSize <= 65536 ? 2 : 4;
}

static Status checkFields(const RawHeader &raw, uint64_t fileSize,
                          const std::string &where) {
  if (raw.vocabSize == 0 || raw.vocabSize > maxVocabSize)
    return Status::error("{}: offset 32: vocabulary size must be 1 to {}, "
                         "got {}; {}",
                         where, maxVocabSize, raw.vocabSize, rebuildAdvice);
  if (raw.tokenBytes != tokenBytesFor(raw.vocabSize))
    return Status::error("{}: offset 12: token width must be {} bytes for a "
                         "vocabulary of {}, got {}; {}",
                         where, tokenBytesFor(raw.vocabSize), raw.vocabSize,
                         raw.tokenBytes, rebuildAdvice);
  uint64_t payload = fileSize - shardHeaderSize;
  // Divide instead of multiplying: tokenCount may be anything.
  if (payload % raw.tokenBytes != 0 ||
      payload / raw.tokenBytes != raw.tokenCount)
    return Status::error("{}: the header promises {} tokens of {} bytes, but "
                         "{} bytes follow it; the file is truncated or "
                         "damaged, {}",
                         where, raw.tokenCount, raw.tokenBytes, payload,
                         rebuildAdvice);
  if (raw.documentCount > raw.tokenCount)
    return Status::error("{}: offset 24: {} documents cannot end in {} "
                         "tokens; {}",
                         where, raw.documentCount, raw.tokenCount,
                         rebuildAdvice);
  return Status::success();
}

StatusOr<ShardHeader> parseShardHeader(std::span<const std::byte> bytes,
                                       const std::string &where) {
  if (bytes.size() < shardHeaderSize)
    return Status::error("{}: {} bytes are too few for a token shard's "
                         "{}-byte header",
                         where, bytes.size(), shardHeaderSize);
  RawHeader raw;
  std::memcpy(&raw, bytes.data(), sizeof(raw));
  if (std::memcmp(raw.magic, shardMagic, sizeof(shardMagic)) != 0)
    return Status::error("{}: offset 0: not a token shard (its magic is "
                         "\"TSRATOKS\"); make one with `tessera data "
                         "tokenize`",
                         where);
  if (raw.version != shardVersion)
    return Status::error("{}: offset 8: token shard version {} is not "
                         "supported, this program reads version {}; {}",
                         where, raw.version, shardVersion, rebuildAdvice);
  if (hashHeader(raw) != raw.headerHash)
    return Status::error("{}: offset 56: the header does not match its hash; "
                         "{}",
                         where, rebuildAdvice);
  TESSERA_RETURN_IF_ERROR(checkFields(raw, bytes.size(), where));
  return ShardHeader{raw.tokenBytes, raw.tokenCount,    raw.documentCount,
                     raw.vocabSize,  raw.tokenizerHash, raw.payloadHash};
}

StatusOr<TokenShard> TokenShard::open(const std::string &path) {
  StatusOr<MappedFile> file = MappedFile::open(path);
  if (!file.ok())
    return file.status();
  return fromFile(file.take(), path);
}

StatusOr<TokenShard> TokenShard::fromFile(MappedFile file,
                                          const std::string &path) {
  StatusOr<ShardHeader> head = parseShardHeader(file.bytes(), path);
  if (!head.ok())
    return head.status();
  file.release(0, shardHeaderSize);
  TokenShard shard;
  shard.file = std::move(file);
  shard.head = *head;
  shard.name = path;
  return shard;
}

template <typename Token>
static Status copyTokens(const std::byte *from, std::span<int32_t> out,
                         uint64_t begin, const TokenShard &shard) {
  uint64_t vocabSize = shard.header().vocabSize;
  uint32_t largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    Token token;
    std::memcpy(&token, from + i * sizeof(Token), sizeof(Token));
    largest = std::max<uint32_t>(largest, token);
    out[i] = static_cast<int32_t>(token);
  }
  if (largest < vocabSize)
    return Status::success();
  auto bad = std::find_if(out.begin(), out.end(), [&](int32_t token) {
    return static_cast<uint32_t>(token) >= vocabSize;
  });
  return Status::error("{}: token {} is {}, but its vocabulary has {}; the "
                       "file is damaged, {}",
                       shard.path(), begin + (bad - out.begin()),
                       static_cast<uint32_t>(*bad), vocabSize, rebuildAdvice);
}

Status TokenShard::read(uint64_t begin, std::span<int32_t> out) const {
  if (begin > size() || out.size() > size() - begin)
    return Status::error("{}: tokens {} to {} were asked for, but it holds {}",
                         name, begin, begin + out.size(), size());
  // Samples are all over the file and not read again soon: mapped, a long run
  // would slowly count the whole corpus as its own memory.
  std::array<std::byte, 1 << 14> piece;
  const size_t width = head.tokenBytes, most = piece.size() / width;
  for (size_t done = 0; done < out.size();) {
    const size_t count = std::min(most, out.size() - done);
    auto bytes = std::span(piece).first(count * width);
    if (Status status =
            file.copy(shardHeaderSize + (begin + done) * width, bytes);
        !status.ok())
      return Status::error("{}: {}", name, status.message());
    auto part = out.subspan(done, count);
    TESSERA_RETURN_IF_ERROR(
        width == 2
            ? copyTokens<uint16_t>(piece.data(), part, begin + done, *this)
            : copyTokens<uint32_t>(piece.data(), part, begin + done, *this));
    done += count;
  }
  return Status::success();
}

Status TokenShard::verify() const {
  std::span<const std::byte> payload = file.bytes().subspan(shardHeaderSize);
  if (hash64(payload) != head.payloadHash)
    return Status::error("{}: the tokens do not match their hash; the file is "
                         "damaged, {}",
                         name, rebuildAdvice);
  std::vector<int32_t> window(4096);
  for (uint64_t begin = 0; begin < size(); begin += window.size()) {
    size_t count = std::min<uint64_t>(window.size(), size() - begin);
    TESSERA_RETURN_IF_ERROR(read(begin, std::span(window).first(count)));
  }
  return Status::success();
}

/// The integers' bytes at the shard's width.
static StatusOr<std::vector<std::byte>>
packTokens(const ShardContents &contents, const std::string &where) {
  auto bad =
      std::find_if(contents.tokens.begin(), contents.tokens.end(),
                   [&](uint32_t token) { return token >= contents.vocabSize; });
  if (bad != contents.tokens.end())
    return Status::error("{}: token {} is {}, but the vocabulary has {}", where,
                         bad - contents.tokens.begin(), *bad,
                         contents.vocabSize);
  uint32_t width = tokenBytesFor(contents.vocabSize);
  std::vector<std::byte> packed(contents.tokens.size() * width);
  std::byte *to = packed.data();
  for (uint32_t token : contents.tokens) {
    std::memcpy(to, &token, width); // little-endian: the low bytes come first
    to += width;
  }
  return packed;
}

/// Writes header and payload under `temporary`, synced.
static Status writeParts(FileOperations &files, const std::string &temporary,
                         const RawHeader &raw,
                         std::span<const std::byte> payload) {
  StatusOr<DurableFile> file = DurableFile::create(files, temporary);
  if (!file.ok())
    return file.status();
  TESSERA_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(&raw, 1))));
  TESSERA_RETURN_IF_ERROR(file->write(payload));
  return file->finish();
}

Status writeTokenShard(const std::string &folder, const std::string &name,
                       const ShardContents &contents) {
  std::string path = folder + "/" + name;
  if (contents.vocabSize == 0 || contents.vocabSize > maxVocabSize)
    return Status::error("{}: vocabulary size must be 1 to {}, got {}", path,
                         maxVocabSize, contents.vocabSize);
  if (contents.documents > contents.tokens.size())
    return Status::error("{}: {} documents cannot end in {} tokens", path,
                         contents.documents, contents.tokens.size());
  StatusOr<std::vector<std::byte>> payload = packTokens(contents, path);
  if (!payload.ok())
    return payload.status();
  RawHeader raw{};
  raw.version = shardVersion;
  raw.tokenBytes = tokenBytesFor(contents.vocabSize);
  raw.tokenCount = contents.tokens.size();
  raw.documentCount = contents.documents;
  raw.vocabSize = contents.vocabSize;
  raw.tokenizerHash = contents.tokenizerHash;
  raw.payloadHash = hash64(*payload);
  std::memcpy(raw.magic, shardMagic, sizeof(shardMagic));
  raw.headerHash = hashHeader(raw);

  FileOperations &files = systemFiles();
  std::string temporary = folder + "/.tmp-" + name;
  // Left by a killed run.
  TESSERA_RETURN_IF_ERROR(files.removeTree(temporary));
  Status status = writeParts(files, temporary, raw, *payload);
  if (status.ok())
    status = files.rename(temporary, path);
  if (!status.ok()) {
    // Report the first error; a leftover file does no harm.
    (void)files.removeTree(temporary);
    return status;
  }
  return files.syncDirectory(folder);
}

} // namespace tessera
