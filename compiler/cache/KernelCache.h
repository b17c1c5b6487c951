// Code of kernels that were compiled before, object code and cubins, by the
// hash of what they were compiled from.
#pragma once
#include "compiler/cache/UserCache.h"
#include "llvm/ADT/StringRef.h"
#include <memory>
#include <optional>
#include <string>

namespace tessera {

/// A map from content hashes to bytes. Called from several threads.
class KernelCache {
public:
  virtual ~KernelCache();
  virtual std::optional<std::string> find(llvm::StringRef key) = 0;
  /// May fail to keep the bytes; a cache is allowed to forget.
  virtual void insert(llvm::StringRef key, llvm::StringRef bytes) = 0;
};

/// `kernels` in the user's cache directory; null where there is none or it is
/// off. Files are written aside and renamed; a damaged one counts as absent.
std::unique_ptr<KernelCache> openUserKernelCache(CacheMode mode);
/// The same in a directory of the caller's.
std::unique_ptr<KernelCache> openKernelCache(llvm::StringRef directory,
                                             CacheMode mode = CacheMode::on);

} // namespace tessera
