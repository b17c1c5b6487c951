#include "compiler/target/cpu/KernelCache.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"

using namespace llvm;

namespace tessera::cpu {

KernelCache::~KernelCache() = default;

namespace {

// A file holds the BLAKE3 of the bytes, then the bytes.
class DirectoryCache : public KernelCache {
public:
  explicit DirectoryCache(StringRef directory) : directory(directory) {}

  std::optional<std::string> find(StringRef key) override {
    auto file = MemoryBuffer::getFile(pathOf(key), /*IsText=*/false,
                                      /*RequiresNullTerminator=*/false);
    if (!file || (*file)->getBufferSize() < kHashBytes)
      return std::nullopt;
    StringRef content = (*file)->getBuffer().drop_front(kHashBytes);
    if (hashOf(content) != (*file)->getBuffer().take_front(kHashBytes))
      return std::nullopt;
    return content.str();
  }

  void insert(StringRef key, StringRef bytes) override {
    if (sys::fs::create_directories(directory))
      return;
    auto file = sys::fs::TempFile::create(pathOf(key) + ".%%%%%%%%");
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
    sys::path::append(path, key + ".o");
    return std::string(path);
  }

  std::string directory;
};

} // namespace

std::unique_ptr<KernelCache> openKernelCache(StringRef directory) {
  return std::make_unique<DirectoryCache>(directory);
}

std::unique_ptr<KernelCache> openUserKernelCache() {
  SmallString<128> path;
  if (auto cache = sys::Process::GetEnv("XDG_CACHE_HOME");
      cache && sys::path::is_absolute(*cache)) {
    path = *cache;
  } else if (sys::path::home_directory(path)) {
    sys::path::append(path, ".cache");
  } else {
    return nullptr;
  }
  sys::path::append(path, "tessera", "kernels");
  return openKernelCache(path);
}

} // namespace tessera::cpu
