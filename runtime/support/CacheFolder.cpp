#include "runtime/support/CacheFolder.h"

#include <algorithm>
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

// Names that a cache gives: what else lies in its folder is somebody's.
static bool isKey(std::string_view name, std::string_view ending) {
  if (!name.ends_with(ending))
    return false;
  name.remove_suffix(ending.size());
  return !name.empty() &&
         name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::vector<CachedFile> cachedFiles(const std::string &folder,
                                    std::string_view ending) {
  std::vector<CachedFile> files;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    if (!isKey(entry->path().filename().native(), ending))
      continue;
    std::error_code gone; // others use the folder, too
    CachedFile each{entry->path().string(), entry->file_size(gone),
                    entry->last_write_time(gone)};
    if (!gone)
      files.push_back(std::move(each));
  }
  return files;
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
