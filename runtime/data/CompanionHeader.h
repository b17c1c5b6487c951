// The 64-byte headers of files with something for each token of NAME.tok: they
// begin with a magic, a version, and of which tokens they are, and have a hash
// of what is before it.
#pragma once
#include "runtime/data/PackedShard.h"
#include "runtime/support/Hash.h"

#include <cstddef>
#include <cstring>
#include <string_view>

namespace tessera {

/// A kind of such files.
struct CompanionKind {
  char magic[8];
  uint64_t version, lastVersion; ///< that are read; the first is written
  std::string_view what;         ///< they hold, in errors
  std::string_view advice;       ///< what to run where one is not as it must be
};

template <typename RawHeader> uint64_t hashHeader(const RawHeader &raw) {
  return hash64(
      std::as_bytes(std::span(&raw, 1)).first(offsetof(RawHeader, headerHash)));
}

/// What a header begins with. `headerHash` is set after all else.
template <typename RawHeader>
RawHeader beginHeader(const CompanionKind &kind, const PackedHeader &of) {
  static_assert(sizeof(RawHeader) == 64);
  RawHeader raw{};
  std::memcpy(raw.magic, kind.magic, sizeof(kind.magic));
  raw.version = kind.version;
  raw.tokenCount = of.tokenCount;
  raw.tokensHash = of.tokensHash;
  return raw;
}

inline Status notAHeader(const CompanionKind &kind, const std::string &path) {
  return Status::error("{}: the header is not that of {} of version {}; {}",
                       path, kind.what, kind.version, kind.advice);
}

/// Reads and verifies the header of `path`, which must belong to the tokens of
/// a shard of that header.
template <typename RawHeader>
StatusOr<RawHeader> readHeader(const CompanionKind &kind,
                               const MappedFile &file, const std::string &path,
                               const PackedHeader &of) {
  RawHeader raw{};
  if (file.bytes().size() < sizeof(raw))
    return Status::error("{}: {} bytes are less than a header; {}", path,
                         file.bytes().size(), kind.advice);
  TESSERA_RETURN_IF_ERROR(
      file.copy(0, std::as_writable_bytes(std::span(&raw, 1))));
  if (std::memcmp(raw.magic, kind.magic, sizeof(kind.magic)) != 0 ||
      raw.version < kind.version || raw.version > kind.lastVersion ||
      hashHeader(raw) != raw.headerHash)
    return notAHeader(kind, path);
  if (raw.tokenCount != of.tokenCount || raw.tokensHash != of.tokensHash)
    return Status::error(
        "{}: belongs to other tokens than those next to it; {}", path,
        kind.advice);
  return raw;
}

} // namespace tessera
