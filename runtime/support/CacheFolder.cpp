#include "runtime/support/CacheFolder.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <sys/stat.h>

namespace tessera {

std::string userCacheFolder() {
  const auto absolute = [](const char *variable) -> std::string {
    const char *path = std::getenv(variable);
    return path && *path == '/' ? path : "";
  };
  if (const std::string base = absolute("XDG_CACHE_HOME"); !base.empty())
    return base + "/tessera";
  const std::string home = absolute("HOME");
  return home.empty() ? "" : home + "/.cache/tessera";
}

static bool isHexadecimal(std::string_view text) {
  return !text.empty() &&
         text.find_first_not_of("0123456789abcdef") == text.npos;
}

// Whether the cache made this name; other files in its folder are not ours.
static bool isKey(std::string_view name, std::string_view ending) {
  return name.ends_with(ending) &&
         isHexadecimal(name.substr(0, name.size() - ending.size()));
}

static bool isAside(std::string_view name, std::string_view ending) {
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos)
    return false;
  const std::string_view digits = name.substr(dot + 1);
  return digits.size() == kAsideDigits && isHexadecimal(digits) &&
         isKey(name.substr(0, dot), ending);
}

/// The files of `folder` whose names satisfy `matches`.
template <typename Matches>
static std::vector<CachedFile> filesOf(const std::string &folder,
                                       Matches matches) {
  std::vector<CachedFile> files;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    if (!matches(entry->path().filename().native()))
      continue;
    std::error_code gone; // others use the folder, too
    CachedFile each{entry->path().string(), entry->file_size(gone),
                    entry->last_write_time(gone)};
    if (!gone)
      files.push_back(std::move(each));
  }
  return files;
}

std::vector<CachedFile> cachedFiles(const std::string &folder,
                                    std::string_view ending) {
  return filesOf(folder,
                 [&](std::string_view name) { return isKey(name, ending); });
}

void removeLeftovers(const std::string &folder, std::string_view ending) {
  using Clock = std::filesystem::file_time_type::clock;
  // No file takes its writer that long.
  const auto old = Clock::now() - std::chrono::hours(1);
  for (const CachedFile &each : filesOf(folder, [&](std::string_view name) {
         return isAside(name, ending);
       }))
    if (std::error_code ignored; each.used < old)
      std::filesystem::remove(each.path, ignored);
}

uint64_t bytesOf(const std::vector<CachedFile> &files) {
  uint64_t bytes = 0;
  for (const CachedFile &each : files)
    bytes += each.bytes;
  return bytes;
}

uint64_t makeRoom(std::vector<CachedFile> files, uint64_t most) {
  uint64_t bytes = bytesOf(files);
  std::ranges::sort(files, {}, &CachedFile::used);
  for (const CachedFile &each : files) {
    if (bytes <= most)
      break;
    std::error_code error;
    std::filesystem::remove(each.path, error);
    if (!error) // by whomever it was removed
      bytes -= each.bytes;
  }
  return bytes;
}

void markUsed(const std::string &path) {
  (void)::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
}

} // namespace tessera
