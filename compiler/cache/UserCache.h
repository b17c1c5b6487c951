// Shared by the two caches: their modes, and the part of every key that
// identifies the compiler.
#pragma once
#include "runtime/support/CacheFolder.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>

namespace tessera {

enum class CacheMode {
  off,      ///< neither read nor written
  on,       ///< read, and written with what was not there
  redo,     ///< written, not read
  readonly, ///< read, not written
};
std::optional<CacheMode> parseCacheMode(llvm::StringRef text);

inline bool readsCache(CacheMode mode) {
  return mode == CacheMode::on || mode == CacheMode::readonly;
}
inline bool writesCache(CacheMode mode) {
  return mode == CacheMode::on || mode == CacheMode::redo;
}

/// In the user's cache: KEY.tsr, and kernels/KEY.o.
constexpr llvm::StringLiteral kArtifactEnding = ".tsr",
                              kKernelFolder = "kernels", kKernelEnding = ".o";

/// Files are written under their names and this, and then renamed.
constexpr llvm::StringLiteral kAside = ".%%%%%%";
static_assert(kAside.size() == 1 + kAsideDigits);

/// All of both kinds in this folder.
std::vector<CachedFile> compiledFiles(const std::string &folder);

/// A hash of the running program's own file, so that a rebuilt compiler never
/// reads what another one wrote.
std::uint64_t hashOfThisProgram();

} // namespace tessera
