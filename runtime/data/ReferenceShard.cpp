#include "runtime/data/ReferenceShard.h"
#include "runtime/data/FileOperations.h"
#include "runtime/support/Hash.h"

#include <cmath>
#include <cstring>
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
static_assert(sizeof(RawHeader) == 64);
} // namespace

constexpr char magic[8] = {'T', 'S', 'R', 'A', 'R', 'E', 'F', 'S'};
constexpr uint64_t version = 1;
constexpr std::string_view advice = "run `tessera data reference` again";

static uint64_t hashHeader(const RawHeader &raw) {
  return hash64(
      std::as_bytes(std::span(&raw, 1)).first(offsetof(RawHeader, headerHash)));
}

StatusOr<ReferenceShard> ReferenceShard::open(const std::string &path,
                                              const PackedHeader &of) {
  StatusOr<MappedFile> file = MappedFile::open(path);
  if (!file.ok())
    return file.status();
  RawHeader raw{};
  if (file->bytes().size() < sizeof(raw))
    return Status::error("{}: {} bytes are less than a header; {}", path,
                         file->bytes().size(), advice);
  TESSERA_RETURN_IF_ERROR(
      file->copy(0, std::as_writable_bytes(std::span(&raw, 1))));
  if (std::memcmp(raw.magic, magic, sizeof(magic)) != 0 ||
      raw.version != version || hashHeader(raw) != raw.headerHash)
    return Status::error("{}: the header is not that of log-probabilities of "
                         "version {}; {}",
                         path, version, advice);
  if (raw.tokenCount != of.tokenCount || raw.tokensHash != of.tokensHash)
    return Status::error(
        "{}: belongs to other tokens than those next to it; {}", path, advice);
  if ((file->bytes().size() - sizeof(raw)) / sizeof(float) != raw.tokenCount ||
      file->bytes().size() % sizeof(float) != 0)
    return Status::error("{}: {} bytes do not hold {} numbers; {}", path,
                         file->bytes().size(), raw.tokenCount, advice);
  ReferenceShard shard;
  shard.file = file.take();
  shard.name = path;
  shard.payloadHash = raw.payloadHash;
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
          name, first + i, out[i], advice);
  return Status::success();
}

Status ReferenceShard::verify() const {
  if (hash64(file.bytes().subspan(sizeof(RawHeader))) == payloadHash)
    return Status::success();
  return Status::error("{}: the numbers do not match their hash; {}", name,
                       advice);
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
                           std::span<const float> logProbabilities) {
  if (logProbabilities.size() != of.tokenCount)
    return Status::error("{}/{}.ref: {} numbers for {} tokens", folder, name,
                         logProbabilities.size(), of.tokenCount);
  RawHeader raw{};
  std::memcpy(raw.magic, magic, sizeof(magic));
  raw.version = version;
  raw.tokenCount = of.tokenCount;
  raw.tokensHash = of.tokensHash;
  raw.payloadHash = hash64(std::as_bytes(logProbabilities));
  raw.headerHash = hashHeader(raw);
  std::string bytes(reinterpret_cast<const char *>(&raw), sizeof(raw));
  bytes.append(reinterpret_cast<const char *>(logProbabilities.data()),
               logProbabilities.size_bytes());
  return replaceFile(systemFiles(), folder, name + ".ref", bytes);
}

} // namespace tessera
