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
  /// Stores atomically, and makes room: artifacts and kernels have at most
  /// `most` bytes then. A cache that cannot be written is no error: compiling
  /// works without one. Returns why it is not stored, unless the mode says so.
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
