#include "runtime/weights/WeightCache.h"
#include "runtime/support/CacheFolder.h"
#include "runtime/support/Hash.h"
#include "runtime/weights/WeightsImage.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <set>
#include <sys/stat.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kEnding = ".weights";
constexpr const char *kFolder = "/weights"; // of the cache

std::string identityOf(const std::string &path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0)
    return "";
  return fmt::format("{} bytes, inode {} of {}, {}.{:09} {}.{:09}",
                     info.st_size, info.st_ino, info.st_dev,
                     info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                     info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
}

/// A line for each of the checkpoint's files, with the hash of its header
/// (names, types and offsets of its tensors); empty if there are none.
std::string describeFiles(const std::string &checkpoint) {
  auto source = SafetensorsModel::open(checkpoint);
  if (!source.ok())
    return "";
  std::string text = source->reading();
  for (const auto &[name, location] : source->tensors()) {
    const SafetensorsEntry &entry = *location.entry;
    text += fmt::format("{} {} [{}] {} {} {}\n", name, int(entry.type),
                        fmt::join(entry.shape, ","), entry.begin, entry.end,
                        location.file->path());
  }
  text =
      fmt::format("tensors {:016x}\n", hash64(std::as_bytes(std::span(text))));
  std::set<std::string> lines;
  for (const std::unique_ptr<SafetensorsFile> &file : source->files()) {
    std::error_code error;
    const auto whole = fs::canonical(file->path(), error);
    if (error)
      return "";
    lines.insert(
        fmt::format("{}: {}\n", whole.string(), identityOf(whole.string())));
  }
  for (const std::string &line : lines)
    text += line;
  return text;
}

/// A line for each parameter: what it is, and where.
std::string describeParameters(ModelState &model, const std::byte *begin) {
  std::string text;
  for (const StateTensor &tensor : model.state()) {
    if (tensor.role != StateRole::parameter)
      continue;
    text += fmt::format("{} {} [{}] at {}", tensor.name, int(tensor.type),
                        fmt::join(tensor.shape, ","),
                        model.stateInMemory(tensor).data() - begin);
    if (tensor.quantized) {
      const QuantizedPart &part = *tensor.quantized;
      text +=
          fmt::format(" of {}: {} {} {} {} {} {} {} {} {}{}", part.source,
                      part.isScales, part.layout.rows, part.layout.columns,
                      part.layout.bits, part.layout.group, part.layout.zeros,
                      part.layout.floats, part.transposed, part.stack,
                      part.layout.superBlocks ? " super-blocks" : "");
    }
    text += "\n";
  }
  return text;
}

} // namespace

std::optional<WeightCache> WeightCache::of(const std::string &folder,
                                           const std::string &checkpoint,
                                           ModelState &model) {
  WeightCache kept;
  kept.memory = parametersInMemory(model);
  if (folder.empty() || kept.memory.empty())
    return std::nullopt;
  const std::string files = describeFiles(checkpoint),
                    program = identityOf("/proc/self/exe");
  if (files.empty() || program.empty())
    return std::nullopt;
  kept.key = fmt::format("{}program: {}\n{}", files, program,
                         describeParameters(model, kept.memory.data()));
  kept.folder = folder + kFolder;
  kept.file = fmt::format("{}/{:016x}{}", kept.folder,
                          hash64(std::as_bytes(std::span(kept.key))), kEnding);
  return kept;
}

bool WeightCache::load(bool mayWrite, std::string &note) const {
  Status status = loadImage(file, key, memory);
  if (status.ok()) {
    if (mayWrite) // of a folder that is not ours, never
      markUsed(file);
    return true;
  }
  if (status.message().empty())
    return false;
  note = fmt::format("weights are read anew: {}", status.message());
  if (mayWrite)
    remove();
  return false;
}

void WeightCache::remove() const {
  std::error_code ignored;
  fs::remove(file, ignored);
}

std::vector<CachedFile> WeightCache::files(const std::string &cache) {
  return cachedFiles(cache + kFolder, kEnding);
}

Status WeightCache::makeRoom(uint64_t most) const {
  std::error_code error;
  // What cannot be kept removes nothing.
  const auto space = fs::space(folder, error);
  if (bytes() > most || error || space.available / 2 < bytes())
    return Status::error(
        "'{}' has no room for {} MiB: there may be {} in all, and no file "
        "takes "
        "more than half of the {} that the disk has left; --cache readonly "
        "keeps none",
        folder, bytes() >> 20, most >> 20, error ? 0 : space.available >> 20);
  const uint64_t left = most - bytes();
  if (tessera::makeRoom(cachedFiles(folder, kEnding), left) > left)
    return Status::error("'{}' has no room for {} MiB: there may be {} in all, "
                         "and older files cannot be removed",
                         folder, bytes() >> 20, most >> 20);
  return Status::success();
}

Status WeightCache::store(std::stop_token stop, uint64_t most) const {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    return Status::error("'{}' cannot be made: {}", folder, error.message());
  TESSERA_RETURN_IF_ERROR(makeRoom(most));
  return storeImage(file, key, memory, std::move(stop));
}

} // namespace tessera
