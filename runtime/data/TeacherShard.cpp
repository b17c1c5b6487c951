#include "runtime/data/TeacherShard.h"
#include "runtime/data/CompanionHeader.h"

#include <algorithm>
#include <cmath>
#include <functional>

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
} // namespace

constexpr CompanionKind kind = {{'T', 'S', 'R', 'A', 'T', 'E', 'A', 'C'},
                                1,
                                1,
                                "a teacher's probabilities",
                                "run `tessera data teacher` again"};
constexpr std::string_view suffix = ".teacher";
constexpr std::size_t kHash = sizeof(uint64_t); // at the end
// Probabilities of numbers in f32 are off by about 1e-6 together.
constexpr double kSumTolerance = 1e-4;

static uint64_t recordBytes(uint64_t top) {
  return top * sizeof(int32_t) + (top + 1) * sizeof(float);
}

StatusOr<TeacherShard> TeacherShard::open(const std::string &path,
                                          const PackedHeader &of) {
  StatusOr<MappedFile> file = MappedFile::open(path);
  if (!file.ok())
    return file.status();
  const auto raw = readHeader<RawHeader>(kind, *file, path, of);
  if (!raw.ok())
    return raw.status();
  if (raw->top < 1 || raw->top > raw->vocabSize || !(raw->temperature > 0))
    return notAHeader(kind, path);
  const uint64_t size = file->bytes().size(), ends = sizeof(RawHeader) + kHash,
                 record = recordBytes(raw->top);
  if (size < ends || (size - ends) % record != 0 ||
      (size - ends) / record != raw->tokenCount)
    return Status::error("{}: {} bytes do not hold {} records of {} tokens; {}",
                         path, size, raw->tokenCount, raw->top, kind.advice);
  TeacherShard shard;
  shard.file = file.take();
  shard.name = path;
  shard.known = {raw->temperature, raw->top, raw->vocabSize};
  shard.tokenCount = raw->tokenCount;
  return shard;
}

/// The first of two equal tokens, or nothing.
static std::optional<int32_t> findTwice(std::span<const int32_t> tokens) {
  std::vector<int32_t> sorted(tokens.begin(), tokens.end());
  std::ranges::sort(sorted);
  const auto found = std::ranges::adjacent_find(sorted);
  return found == sorted.end() ? std::nullopt : std::optional(*found);
}

// Of any bytes: what the file holds.
Status TeacherShard::check(uint64_t token, std::span<const int32_t> tokens,
                           std::span<const float> logProbs) const {
  const auto refuse = [&](const std::string &what) {
    return Status::error("{}: token {} has {}; {}", name, token, what,
                         kind.advice);
  };
  for (const float each : logProbs)
    if (!(each <= 0) || each < kLeastLogProb)
      return refuse(fmt::format("{}, which is not a log-probability", each));
  const auto none = std::ranges::count(tokens, kNoTeacherToken);
  if (none == std::ssize(tokens))
    return Status::success();
  if (none > 0)
    return refuse(fmt::format("{} tokens instead of {}",
                              std::ssize(tokens) - none, std::ssize(tokens)));
  for (const int32_t each : tokens)
    if (each < 0 || each >= int64_t(known.vocabSize))
      return refuse(fmt::format("{}, which is outside the teacher's vocabulary "
                                "of {}",
                                each, known.vocabSize));
  if (const auto twice = findTwice(tokens))
    return refuse(fmt::format("{} twice", *twice));
  if (!std::ranges::is_sorted(logProbs.first(tokens.size()), std::greater()))
    return refuse("a token before one that is more probable");
  double sum = 0;
  for (const float each : logProbs)
    sum += std::exp(double(each));
  if (std::abs(sum - 1) > kSumTolerance)
    return refuse(fmt::format("probabilities of {:.6g} together", sum));
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
  const std::size_t record = recordBytes(known.top);
  std::vector<std::byte> records(count * record);
  TESSERA_RETURN_IF_ERROR(
      file.copy(sizeof(RawHeader) + first * record, records));
  std::vector<int32_t> ids(known.top);
  std::vector<float> values(known.top + 1);
  for (uint64_t i = 0; i < count; ++i) {
    const std::byte *from = records.data() + i * record;
    std::memcpy(ids.data(), from, ids.size() * sizeof(int32_t));
    std::memcpy(values.data(), from + ids.size() * sizeof(int32_t),
                values.size() * sizeof(float));
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
                       kind.advice);
}

PartialFile::~PartialFile() {
  if (!where.empty())
    (void)systemFiles().removeTree(where);
}

StatusOr<TeacherWriter> TeacherWriter::create(const std::string &folder,
                                              const std::string &name,
                                              const PackedHeader &of,
                                              const TeacherFacts &facts) {
  const std::string file = name + std::string(suffix),
                    partial = folder + "/.tmp-" + file;
  TESSERA_RETURN_IF_ERROR(systemFiles().removeTree(partial));
  StatusOr<DurableFile> opened = DurableFile::create(systemFiles(), partial);
  if (!opened.ok())
    return opened.status();
  TeacherWriter writer(folder, file, PartialFile(partial), of.tokenCount,
                       facts.top, opened.take());
  auto raw = beginHeader<RawHeader>(kind, of);
  raw.temperature = facts.temperature;
  raw.top = facts.top;
  raw.vocabSize = facts.vocabSize;
  raw.headerHash = hashHeader(raw);
  TESSERA_RETURN_IF_ERROR(writer.file.write(std::as_bytes(std::span(&raw, 1))));
  return writer;
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
      systemFiles().rename(partial.path(), folder + "/" + name));
  partial.keep();
  return systemFiles().syncDirectory(folder);
}

Status removeTeacherShard(const std::string &folder, const std::string &name) {
  return systemFiles().removeTree(folder + "/" + name + std::string(suffix));
}

} // namespace tessera
