// Whole artifacts: <user cache>/<key>.tsr. A key is a hash of all that the
// artifact follows from: spec, recipe, targets, and the compiler itself.
#pragma once
#include "compiler/cache/UserCache.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>

namespace tessera {

class ArtifactCache {
public:
  explicit ArtifactCache(CacheMode mode);

  /// 32 hexadecimal digits over the parts and the compiler's own program file.
  static std::string key(llvm::ArrayRef<llvm::StringRef> parts);

  /// The stored bytes; nullopt where there are none or the mode forbids to
  /// look.
  std::optional<std::string> load(llvm::StringRef key) const;
  /// Stores atomically, and evicts until artifacts and kernels have at most
  /// `most` bytes. Failure to write is not an error: compilation works without
  /// a cache. Returns why nothing was stored, unless the mode disables storing.
  std::string store(llvm::StringRef key, llvm::StringRef bytes,
                    uint64_t most) const;

  /// Removes artifacts and kernels, those used longest ago first, until they
  /// have at most `most` bytes; and of both what was never finished.
  void trim(uint64_t most) const;

private:
  std::string path(llvm::StringRef key) const;
  CacheMode mode;
  std::string directory; ///< empty: no home, no cache
};

} // namespace tessera
