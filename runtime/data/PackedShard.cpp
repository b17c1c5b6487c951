#include "runtime/data/PackedShard.h"
#include "runtime/data/FileOperations.h"
#include "runtime/support/Hash.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tessera {

namespace {
struct RawHeader {
  char magic[8];
  uint32_t version;
  uint32_t sequence;
  uint64_t rowCount;
  uint64_t documentCount;
  uint64_t tokenCount;
  uint64_t tokensHash;
  uint64_t payloadHash;
  uint64_t headerHash;
};
static_assert(sizeof(RawHeader) == 64);

/// Where a row begins; one more entry has the totals.
struct RawRow {
  uint64_t token;
  uint64_t document;
};

struct RawDocument {
  uint32_t length;
  uint16_t kind;
  uint16_t source;
  uint64_t line;
};
static_assert(sizeof(RawRow) == 16 && sizeof(RawDocument) == 16);
} // namespace

static constexpr char rowsMagic[8] = {'T', 'S', 'R', 'A', 'R', 'O', 'W', 'S'};
static constexpr uint32_t rowsVersion = 1;
static constexpr const char *rebuildAdvice =
    "write it again with `tessera data chat`";

static uint64_t hashHeader(const RawHeader &raw) {
  return hash64(
      std::as_bytes(std::span(&raw, 1)).first(offsetof(RawHeader, headerHash)));
}

static uint64_t documentsOffset(const PackedHeader &head) {
  return sizeof(RawHeader) + (head.rowCount + 1) * sizeof(RawRow);
}

static uint64_t maskOffset(const PackedHeader &head) {
  return documentsOffset(head) + head.documentCount * sizeof(RawDocument);
}

static Status checkFields(const PackedHeader &head, uint64_t fileSize,
                          const std::string &where) {
  if (head.sequence == 0 || head.sequence > maxPackedSequence)
    return Status::error("{}: offset 12: rows must have 1 to {} positions, "
                         "got {}; {}",
                         where, maxPackedSequence, head.sequence,
                         rebuildAdvice);
  // Every row has a document and every document a token.
  if (head.rowCount > head.documentCount ||
      head.documentCount > head.tokenCount)
    return Status::error("{}: offset 16: {} rows, {} documents and {} tokens "
                         "do not fit together; {}",
                         where, head.rowCount, head.documentCount,
                         head.tokenCount, rebuildAdvice);
  // A document takes 16 bytes of the file, and a token a bit, so that none of
  // the sums below can wrap.
  if (head.tokenCount / 8 > fileSize || head.documentCount > fileSize / 16 ||
      maskOffset(head) + (head.tokenCount + 7) / 8 != fileSize)
    return Status::error("{}: the header promises {} rows, {} documents and "
                         "{} tokens, but the file has {} bytes; the file is "
                         "truncated or damaged, {}",
                         where, head.rowCount, head.documentCount,
                         head.tokenCount, fileSize, rebuildAdvice);
  return Status::success();
}

StatusOr<PackedHeader> parsePackedHeader(std::span<const std::byte> bytes,
                                         const std::string &where) {
  RawHeader raw;
  if (bytes.size() < sizeof(raw))
    return Status::error("{}: {} bytes are too few for the {}-byte header of "
                         "packed rows",
                         where, bytes.size(), sizeof(raw));
  std::memcpy(&raw, bytes.data(), sizeof(raw));
  if (std::memcmp(raw.magic, rowsMagic, sizeof(rowsMagic)) != 0)
    return Status::error("{}: offset 0: not a file of packed rows (its magic "
                         "is \"TSRAROWS\"); make one with `tessera data chat`",
                         where);
  if (raw.version != rowsVersion)
    return Status::error("{}: offset 8: version {} of packed rows is not "
                         "supported, this program reads version {}; {}",
                         where, raw.version, rowsVersion, rebuildAdvice);
  if (hashHeader(raw) != raw.headerHash)
    return Status::error("{}: offset 56: the header does not match its hash; "
                         "{}",
                         where, rebuildAdvice);
  PackedHeader head{raw.sequence,   raw.rowCount,   raw.documentCount,
                    raw.tokenCount, raw.tokensHash, raw.payloadHash};
  TESSERA_RETURN_IF_ERROR(checkFields(head, bytes.size(), where));
  return head;
}

StatusOr<PackedShard> PackedShard::open(const std::string &folder,
                                        const std::string &name) {
  const std::string path = folder + "/" + name;
  StatusOr<TokenShard> tokens = TokenShard::open(path + ".tok");
  if (!tokens.ok())
    return tokens.status();
  StatusOr<MappedFile> rows = MappedFile::open(path + ".rows");
  if (!rows.ok())
    return rows.status();
  return fromFiles(tokens.take(), rows.take(), path + ".rows");
}

StatusOr<PackedShard> PackedShard::fromFiles(TokenShard tokens, MappedFile rows,
                                             const std::string &path) {
  StatusOr<PackedHeader> head = parsePackedHeader(rows.bytes(), path);
  if (!head.ok())
    return head.status();
  const ShardHeader &other = tokens.header();
  if (other.tokenCount != head->tokenCount ||
      other.documentCount != head->documentCount ||
      other.payloadHash != head->tokensHash)
    return Status::error("{}: belongs to other tokens than those of {}; {}",
                         path, tokens.path(), rebuildAdvice);
  rows.release(0, sizeof(RawHeader));
  return PackedShard(std::move(tokens), std::move(rows), *head, path);
}

template <typename T>
Status PackedShard::copy(uint64_t offset, uint64_t count,
                         std::vector<T> &out) const {
  out.resize(count);
  Status status = file.copy(offset, std::as_writable_bytes(std::span(out)));
  return status.ok() ? status : Status::error("{}: {}", name, status.message());
}

Status PackedShard::readMask(uint64_t firstToken, uint64_t count,
                             std::vector<uint8_t> &out) const {
  const uint64_t firstByte = firstToken / 8;
  const uint64_t bytes = (firstToken + count + 7) / 8 - firstByte;
  std::vector<uint8_t> bits;
  TESSERA_RETURN_IF_ERROR(copy(maskOffset(head) + firstByte, bytes, bits));
  out.resize(count);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t bit = firstToken % 8 + i;
    out[i] = bits[bit / 8] >> (bit % 8) & 1;
  }
  return Status::success();
}

Status PackedShard::read(uint64_t row, PackedRowContents &out) const {
  auto damaged = [&](std::string_view what) {
    return Status::error("{}: row {}: {}; the file is damaged, {}", name, row,
                         what, rebuildAdvice);
  };
  if (row >= head.rowCount)
    return Status::error("{}: row {} was asked for, but it has {}", name, row,
                         head.rowCount);
  std::vector<RawRow> table;
  TESSERA_RETURN_IF_ERROR(
      copy(sizeof(RawHeader) + row * sizeof(RawRow), 2, table));
  const RawRow &begin = table[0], &end = table[1];
  if (begin.token >= end.token || end.token > head.tokenCount ||
      end.token - begin.token > head.sequence ||
      begin.document >= end.document || end.document > head.documentCount)
    return damaged("its bounds are not valid");
  const uint64_t count = end.token - begin.token;
  std::vector<RawDocument> raw;
  if (end.document - begin.document > count)
    return damaged("it has more documents than tokens");
  TESSERA_RETURN_IF_ERROR(
      copy(documentsOffset(head) + begin.document * sizeof(RawDocument),
           end.document - begin.document, raw));
  out.documents.clear();
  uint64_t total = 0;
  for (const RawDocument &each : raw) {
    if (each.length == 0 || each.kind >= documentKinds)
      return damaged("a document without tokens or of an unknown kind");
    total += each.length;
    out.documents.push_back(
        {each.length, DocumentKind(each.kind), each.source, each.line});
  }
  if (total != count)
    return damaged("its documents do not add up to its tokens");
  out.tokens.resize(count);
  TESSERA_RETURN_IF_ERROR(tokenShard.read(begin.token, out.tokens));
  return readMask(begin.token, count, out.supervised);
}

StatusOr<uint64_t> PackedShard::firstToken(uint64_t row) const {
  std::vector<RawRow> table;
  TESSERA_RETURN_IF_ERROR(
      copy(sizeof(RawHeader) + row * sizeof(RawRow), 1, table));
  return table.front().token;
}

StatusOr<uint64_t> PackedShard::mostDocuments() const {
  constexpr uint64_t together = 4096;
  uint64_t most = 0;
  std::vector<RawRow> table;
  for (uint64_t row = 0; row < head.rowCount; row += together) {
    const uint64_t count = std::min(together, head.rowCount - row);
    TESSERA_RETURN_IF_ERROR(
        copy(sizeof(RawHeader) + row * sizeof(RawRow), count + 1, table));
    for (uint64_t i = 0; i < count; ++i)
      if (table[i + 1].document > table[i].document)
        most = std::max(most, table[i + 1].document - table[i].document);
  }
  return most;
}

Status PackedShard::verify() const {
  TESSERA_RETURN_IF_ERROR(tokenShard.verify());
  if (hash64(file.bytes().subspan(sizeof(RawHeader))) != head.payloadHash)
    return Status::error("{}: the rows do not match their hash; the file is "
                         "damaged, {}",
                         name, rebuildAdvice);
  PackedRowContents row;
  uint64_t tokens = 0, documents = 0;
  for (uint64_t i = 0; i < head.rowCount; ++i) {
    TESSERA_RETURN_IF_ERROR(read(i, row));
    tokens += row.tokens.size();
    documents += row.documents.size();
  }
  if (tokens != head.tokenCount || documents != head.documentCount)
    return Status::error("{}: the rows leave out tokens; {}", name,
                         rebuildAdvice);
  return Status::success();
}

static Status checkContents(const PackedShardContents &from,
                            const std::string &path) {
  uint64_t documents = 0, tokens = 0;
  for (uint32_t count : from.rowDocuments) {
    uint64_t length = 0;
    for (uint32_t i = 0; i < count && documents < from.documents.size(); ++i)
      length += from.documents[documents++].length;
    if (length == 0 || length > from.sequence)
      return Status::error("{}: a row has {} tokens, not 1 to {}", path, length,
                           from.sequence);
    tokens += length;
  }
  if (documents != from.documents.size() || tokens != from.tokens.size() ||
      from.supervised.size() != tokens)
    return Status::error("{}: rows of {} documents and {} tokens, but {} and "
                         "{} were given, and a mask of {}",
                         path, documents, tokens, from.documents.size(),
                         from.tokens.size(), from.supervised.size());
  return Status::success();
}

template <typename T> static void append(std::string &out, const T &value) {
  out.append(reinterpret_cast<const char *>(&value), sizeof(value));
}

static std::string payloadOf(const PackedShardContents &from) {
  std::string out;
  RawRow at{};
  append(out, at);
  for (uint32_t count : from.rowDocuments) {
    for (uint32_t i = 0; i < count; ++i)
      at.token += from.documents[at.document++].length;
    append(out, at);
  }
  for (const PackedDocument &each : from.documents)
    append(out, RawDocument{each.length, uint16_t(each.kind), each.source,
                            each.line});
  const std::size_t mask = out.size();
  out.resize(mask + (from.supervised.size() + 7) / 8);
  for (std::size_t i = 0; i < from.supervised.size(); ++i)
    if (from.supervised[i])
      out[mask + i / 8] = char(uint8_t(out[mask + i / 8]) | 1u << (i % 8));
  return out;
}

Status writePackedShard(const std::string &folder, const std::string &name,
                        const PackedShardContents &from) {
  TESSERA_RETURN_IF_ERROR(checkContents(from, folder + "/" + name));
  ShardContents tokens{from.tokens, from.documents.size(), from.vocabSize,
                       from.tokenizerHash};
  TESSERA_RETURN_IF_ERROR(writeTokenShard(folder, name + ".tok", tokens));
  StatusOr<TokenShard> written = TokenShard::open(folder + "/" + name + ".tok");
  if (!written.ok())
    return written.status();
  const std::string payload = payloadOf(from);
  RawHeader raw{};
  std::memcpy(raw.magic, rowsMagic, sizeof(rowsMagic));
  raw.version = rowsVersion;
  raw.sequence = from.sequence;
  raw.rowCount = from.rowDocuments.size();
  raw.documentCount = from.documents.size();
  raw.tokenCount = from.tokens.size();
  raw.tokensHash = written->header().payloadHash;
  raw.payloadHash = hash64(std::as_bytes(std::span(payload)));
  raw.headerHash = hashHeader(raw);
  std::string bytes;
  append(bytes, raw);
  bytes += payload;
  return replaceFile(systemFiles(), folder, name + ".rows", bytes);
}

} // namespace tessera
