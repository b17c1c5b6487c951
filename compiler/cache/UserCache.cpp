#include "compiler/cache/UserCache.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/xxhash.h"

using namespace tessera;

std::optional<CacheMode> tessera::parseCacheMode(llvm::StringRef text) {
  return llvm::StringSwitch<std::optional<CacheMode>>(text)
      .Case("off", CacheMode::off)
      .Case("on", CacheMode::on)
      .Case("redo", CacheMode::redo)
      .Case("readonly", CacheMode::readonly)
      .Default(std::nullopt);
}

std::vector<CachedFile> tessera::compiledFiles(const std::string &folder) {
  std::vector<CachedFile> files = cachedFiles(folder, kArtifactEnding);
  std::vector<CachedFile> kernels =
      cachedFiles(folder + "/" + kKernelFolder.str(), kKernelEnding);
  files.insert(files.end(), kernels.begin(), kernels.end());
  return files;
}

std::uint64_t tessera::hashOfThisProgram() {
  static const std::uint64_t hash = [] {
    auto self = llvm::MemoryBuffer::getFile("/proc/self/exe");
    return self ? llvm::xxh3_64bits((*self)->getBuffer()) : 0;
  }();
  return hash;
}
