// Where the user's caches are, and which of their files go when there are too
// many.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// $XDG_CACHE_HOME/tessera, or $HOME/.cache/tessera if that variable is unset
/// or, as its specification requires, ignored because it is not absolute; empty
/// if $HOME is unset or relative, too. Nothing is created.
std::string userCacheFolder();

/// A file that a cache may forget.
struct CachedFile {
  std::string path;
  uint64_t bytes = 0;
  std::filesystem::file_time_type used; ///< when it was written, or read last
};

/// The files of `folder` whose names are a key in hexadecimal digits, then
/// `ending`; empty if the folder does not exist.
std::vector<CachedFile> cachedFiles(const std::string &folder,
                                    std::string_view ending);

/// What is not whole yet has the name that it is to have, a dot and so many
/// random hexadecimal digits.
constexpr std::size_t kAsideDigits = 6;

/// Removes what writers have left that were killed: files of `folder` with such
/// names to which nothing was written for an hour.
void removeLeftovers(const std::string &folder, std::string_view ending);

/// Of all of them together.
uint64_t bytesOf(const std::vector<CachedFile> &files);

/// Removes files, those first that were used longest ago, until the others have
/// at most so many bytes; returns how many these have.
uint64_t makeRoom(std::vector<CachedFile> files, uint64_t most);

/// Says that the file is used now.
void markUsed(const std::string &path);

} // namespace tessera
