#include "runtime/data/ReferenceShard.h"
#include "runtime/data/CompanionHeader.h"
#include "runtime/data/FileOperations.h"

#include <cmath>
#include <filesystem>

namespace tessera {

namespace {
struct RawHeader {
  char magic[8];
  uint64_t version;
  uint64_t tokenCount;
  uint64_t tokensHash;
  uint64_t payloadHash;
  uint64_t headerHash;
  uint64_t zero[2];
};
} // namespace

/// Of prompts whose tokens see each other.
constexpr uint64_t kWholePrompts = 2;

constexpr CompanionKind kind = {{'T', 'S', 'R', 'A', 'R', 'E', 'F', 'S'},
                                1,
                                2,
                                "log-probabilities",
                                "run `tessera data reference` again"};

StatusOr<ReferenceShard> ReferenceShard::open(const std::string &path,
                                              const PackedHeader &of) {
  StatusOr<MappedFile> file = MappedFile::open(path);
  if (!file.ok())
    return file.status();
  const auto raw = readHeader<RawHeader>(kind, *file, path, of);
  if (!raw.ok())
    return raw.status();
  if ((file->bytes().size() - sizeof(RawHeader)) / sizeof(float) !=
          raw->tokenCount ||
      file->bytes().size() % sizeof(float) != 0)
    return Status::error("{}: {} bytes do not hold {} numbers; {}", path,
                         file->bytes().size(), raw->tokenCount, kind.advice);
  ReferenceShard shard;
  shard.file = file.take();
  shard.name = path;
  shard.payloadHash = raw->payloadHash;
  shard.ofWholePrompts = raw->version == kWholePrompts;
  return shard;
}

Status ReferenceShard::read(uint64_t first, std::span<float> out) const {
  TESSERA_RETURN_IF_ERROR(file.copy(sizeof(RawHeader) + first * sizeof(float),
                                    std::as_writable_bytes(out)));
  for (std::size_t i = 0; i < out.size(); ++i)
    if (!(out[i] <= 0) || std::isinf(out[i]))
      return Status::error(
          "{}: token {} has {}, which is not a log-probability; "
          "{}",
          name, first + i, out[i], kind.advice);
  return Status::success();
}

Status ReferenceShard::verify() const {
  if (hash64(file.bytes().subspan(sizeof(RawHeader))) == payloadHash)
    return Status::success();
  return Status::error("{}: the numbers do not match their hash; {}", name,
                       kind.advice);
}

Status removeReferenceShard(const std::string &folder,
                            const std::string &name) {
  const std::string path = folder + "/" + name + ".ref";
  std::error_code failure;
  std::filesystem::remove(path, failure);
  return failure
             ? Status::error("cannot remove {}: {}", path, failure.message())
             : Status::success();
}

Status writeReferenceShard(const std::string &folder, const std::string &name,
                           const PackedHeader &of,
                           std::span<const float> logProbabilities,
                           bool hasWholePrompts) {
  if (logProbabilities.size() != of.tokenCount)
    return Status::error("{}/{}.ref: {} numbers for {} tokens", folder, name,
                         logProbabilities.size(), of.tokenCount);
  auto raw = beginHeader<RawHeader>(kind, of);
  if (hasWholePrompts)
    raw.version = kWholePrompts;
  raw.payloadHash = hash64(std::as_bytes(logProbabilities));
  raw.headerHash = hashHeader(raw);
  std::string bytes(reinterpret_cast<const char *>(&raw), sizeof(raw));
  bytes.append(reinterpret_cast<const char *>(logProbabilities.data()),
               logProbabilities.size_bytes());
  return replaceFile(systemFiles(), folder, name + ".ref", bytes);
}

} // namespace tessera
