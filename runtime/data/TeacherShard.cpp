#include "runtime/data/TeacherShard.h"

#include <algorithm>
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
  double temperature;
  uint32_t top;
  uint32_t vocabSize;
  uint64_t headerHash;
  uint64_t zero;
};
static_assert(sizeof(RawHeader) == 64);
} // namespace

constexpr char magic[8] = {'T', 'S', 'R', 'A', 'T', 'E', 'A', 'C'};
constexpr uint64_t version = 1;
constexpr std::string_view advice = "run `tessera data teacher` again";
constexpr std::string_view suffix = ".teacher";

static uint64_t hashHeader(const RawHeader &raw) {
  return hash64(
      std::as_bytes(std::span(&raw, 1)).first(offsetof(RawHeader, headerHash)));
}

static uint64_t recordBytes(uint64_t top) {
  return top * sizeof(int32_t) + (top + 1) * sizeof(float);
}

StatusOr<TeacherShard> TeacherShard::open(const std::string &path,
                                          const PackedHeader &of) {
  StatusOr<MappedFile> file = MappedFile::open(path);
  if (!file.ok())
    return file.status();
  RawHeader raw{};
  const uint64_t size = file->bytes().size(),
                 most = size - sizeof(raw) - sizeof(uint64_t);
  if (size < sizeof(raw) + sizeof(uint64_t))
    return Status::error("{}: {} bytes are less than a header; {}", path, size,
                         advice);
  TESSERA_RETURN_IF_ERROR(
      file->copy(0, std::as_writable_bytes(std::span(&raw, 1))));
  if (std::memcmp(raw.magic, magic, sizeof(magic)) != 0 ||
      raw.version != version || hashHeader(raw) != raw.headerHash ||
      raw.top < 1 || raw.top > raw.vocabSize || !(raw.temperature > 0))
    return Status::error("{}: the header is not that of a teacher's "
                         "probabilities of version {}; {}",
                         path, version, advice);
  if (raw.tokenCount != of.tokenCount || raw.tokensHash != of.tokensHash)
    return Status::error(
        "{}: belongs to other tokens than those next to it; {}", path, advice);
  if (most % recordBytes(raw.top) != 0 ||
      most / recordBytes(raw.top) != raw.tokenCount)
    return Status::error("{}: {} bytes do not hold {} records of {} tokens; {}",
                         path, size, raw.tokenCount, raw.top, advice);
  TeacherShard shard;
  shard.file = file.take();
  shard.name = path;
  shard.known = {raw.temperature, raw.top, raw.vocabSize};
  shard.tokenCount = raw.tokenCount;
  return shard;
}

Status TeacherShard::check(uint64_t token, std::span<const int32_t> tokens,
                           std::span<const float> logProbs) const {
  for (const int32_t each : tokens)
    if (each < -1 || each >= int64_t(known.vocabSize))
      return Status::error("{}: token {} has {}, which is outside the "
                           "teacher's vocabulary of {}; {}",
                           name, token, each, known.vocabSize, advice);
  for (const float each : logProbs)
    if (!(each <= 0) || each < kLeastLogProb)
      return Status::error("{}: token {} has {}, which is not a "
                           "log-probability; {}",
                           name, token, each, advice);
  return Status::success();
}

/// Of the classes after the first `top` together.
static float logOfRest(std::span<const float> logProbs, std::size_t top) {
  double sum = 0;
  for (const float each : logProbs.subspan(top))
    sum += std::exp(double(each));
  return std::min(std::max(float(std::log(sum)), kLeastLogProb), 0.0f);
}

Status TeacherShard::read(uint64_t first, uint64_t count, std::size_t top,
                          std::span<int32_t> tokens,
                          std::span<float> logProbs) const {
  std::vector<int32_t> ids(known.top);
  std::vector<float> values(known.top + 1);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at =
        sizeof(RawHeader) + (first + i) * recordBytes(known.top);
    TESSERA_RETURN_IF_ERROR(
        file.copy(at, std::as_writable_bytes(std::span(ids))));
    TESSERA_RETURN_IF_ERROR(
        file.copy(at + ids.size() * sizeof(int32_t),
                  std::as_writable_bytes(std::span(values))));
    TESSERA_RETURN_IF_ERROR(check(first + i, ids, values));
    std::copy_n(ids.begin(), top, tokens.begin() + long(i * top));
    const auto to = logProbs.begin() + long(i * (top + 1));
    std::copy_n(values.begin(), top, to);
    to[long(top)] = top == known.top ? values.back() : logOfRest(values, top);
  }
  return Status::success();
}

Status TeacherShard::verify() const {
  const std::span<const std::byte> all = file.bytes();
  uint64_t expected = 0;
  const uint64_t end = all.size() - sizeof(expected);
  std::memcpy(&expected, all.data() + end, sizeof(expected));
  if (hash64(all.subspan(sizeof(RawHeader), end - sizeof(RawHeader))) ==
      expected)
    return Status::success();
  return Status::error("{}: the records do not match their hash; {}", name,
                       advice);
}

static std::string partialPath(const std::string &folder,
                               const std::string &name) {
  return folder + "/.tmp-" + name;
}

StatusOr<TeacherWriter> TeacherWriter::create(const std::string &folder,
                                              const std::string &name,
                                              const PackedHeader &of,
                                              const TeacherFacts &facts) {
  const std::string file = name + std::string(suffix),
                    partial = partialPath(folder, file);
  TESSERA_RETURN_IF_ERROR(systemFiles().removeTree(partial));
  StatusOr<DurableFile> opened = DurableFile::create(systemFiles(), partial);
  if (!opened.ok())
    return opened.status();
  RawHeader raw{};
  std::memcpy(raw.magic, magic, sizeof(magic));
  raw.version = version;
  raw.tokenCount = of.tokenCount;
  raw.tokensHash = of.tokensHash;
  raw.temperature = facts.temperature;
  raw.top = facts.top;
  raw.vocabSize = facts.vocabSize;
  raw.headerHash = hashHeader(raw);
  TESSERA_RETURN_IF_ERROR(opened->write(std::as_bytes(std::span(&raw, 1))));
  return TeacherWriter(folder, file, of.tokenCount, facts.top, opened.take());
}

Status TeacherWriter::add(std::span<const int32_t> tokens,
                          std::span<const float> logProbs) {
  const std::size_t records = tokens.size() / top;
  buffer.clear();
  const auto append = [&](auto values) {
    const auto bytes = std::as_bytes(values);
    buffer.insert(buffer.end(), bytes.begin(), bytes.end());
  };
  for (std::size_t i = 0; i < records; ++i) {
    append(tokens.subspan(i * top, top));
    append(logProbs.subspan(i * (top + 1), top + 1));
  }
  hasher.update(buffer);
  written += records;
  return file.write(buffer);
}

Status TeacherWriter::finish() {
  if (written != tokenCount)
    return Status::error("{}/{}: {} records for {} tokens", folder, name,
                         written, tokenCount);
  const uint64_t hash = hasher.digest();
  TESSERA_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(&hash, 1))));
  TESSERA_RETURN_IF_ERROR(file.finish());
  TESSERA_RETURN_IF_ERROR(
      systemFiles().rename(partialPath(folder, name), folder + "/" + name));
  return systemFiles().syncDirectory(folder);
}

Status removeTeacherShard(const std::string &folder, const std::string &name) {
  return systemFiles().removeTree(folder + "/" + name + std::string(suffix));
}

} // namespace tessera
