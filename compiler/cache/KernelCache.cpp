#include "compiler/cache/KernelCache.h"
#include "runtime/support/CacheFolder.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace llvm;

namespace tessera {

KernelCache::~KernelCache() = default;

namespace {

// A file holds the BLAKE3 of the bytes, then the bytes.
class DirectoryCache : public KernelCache {
public:
  DirectoryCache(StringRef directory, CacheMode mode)
      : directory(directory), mode(mode) {}

  std::optional<std::string> find(StringRef key) override {
    if (!readsCache(mode))
      return std::nullopt;
    auto file = MemoryBuffer::getFile(pathOf(key), /*IsText=*/false,
                                      /*RequiresNullTerminator=*/false);
    if (!file || (*file)->getBufferSize() < kHashBytes)
      return std::nullopt;
    StringRef content = (*file)->getBuffer().drop_front(kHashBytes);
    if (hashOf(content) != (*file)->getBuffer().take_front(kHashBytes))
      return std::nullopt;
    if (writesCache(mode))
      markUsed(pathOf(key));
    return content.str();
  }

  void insert(StringRef key, StringRef bytes) override {
    if (!writesCache(mode) || sys::fs::create_directories(directory))
      return;
    auto file = sys::fs::TempFile::create(pathOf(key) + kAside);
    if (!file)
      return consumeError(file.takeError());
    {
      raw_fd_ostream stream(file->FD, /*shouldClose=*/false);
      stream << hashOf(bytes) << bytes;
      stream.flush();
      if (stream.has_error()) {
        stream.clear_error();
        return consumeError(file->discard());
      }
    }
    consumeError(file->keep(pathOf(key)));
  }

private:
  static constexpr size_t kHashBytes = 32;

  static std::string hashOf(StringRef bytes) {
    auto hash = BLAKE3::hash<kHashBytes>(arrayRefFromStringRef(bytes));
    return std::string(hash.begin(), hash.end());
  }
  std::string pathOf(StringRef key) const {
    SmallString<128> path(directory);
    sys::path::append(path, key + kKernelEnding);
    return std::string(path);
  }

  std::string directory;
  CacheMode mode;
};

} // namespace

std::unique_ptr<KernelCache> openKernelCache(StringRef directory,
                                             CacheMode mode) {
  return std::make_unique<DirectoryCache>(directory, mode);
}

std::unique_ptr<KernelCache> openUserKernelCache(CacheMode mode) {
  std::string base = userCacheFolder();
  if (base.empty() || mode == CacheMode::off)
    return nullptr;
  SmallString<128> path(base);
  sys::path::append(path, kKernelFolder);
  return openKernelCache(path, mode);
}

} // namespace tessera
