#include "compiler/cache/ArtifactCache.h"
#include "runtime/artifact/AppendedArtifact.h"
#include "runtime/support/CacheFolder.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace tessera;

ArtifactCache::ArtifactCache(CacheMode mode)
    : mode(mode), directory(userCacheFolder()) {}

std::string ArtifactCache::path(llvm::StringRef key) const {
  llvm::SmallString<128> path(directory);
  llvm::sys::path::append(path, key + kArtifactEnding);
  return path.str().str();
}

std::string ArtifactCache::key(llvm::ArrayRef<llvm::StringRef> parts) {
  XXH3_state_t *state = XXH3_createState();
  XXH3_128bits_reset(state);
  std::uint64_t self = hashOfThisProgram();
  XXH3_128bits_update(state, &self, sizeof(self));
  for (llvm::StringRef part :
       parts) { // with lengths, so that parts cannot run together
    std::uint64_t size = part.size();
    XXH3_128bits_update(state, &size, sizeof(size));
    XXH3_128bits_update(state, part.data(), part.size());
  }
  XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return llvm::formatv("{0:x-16}{1:x-16}", hash.high64, hash.low64).str();
}

std::optional<std::string> ArtifactCache::load(llvm::StringRef key) const {
  if (directory.empty() || !readsCache(mode))
    return std::nullopt;
  auto file = llvm::MemoryBuffer::getFile(path(key));
  if (!file)
    return std::nullopt;
  llvm::StringRef bytes = (*file)->getBuffer();
  // A torn or damaged entry is as good as none.
  artifact::Footer footer;
  if (bytes.size() < sizeof(footer))
    return std::nullopt;
  std::memcpy(&footer, bytes.data() + bytes.size() - sizeof(footer),
              sizeof(footer));
  llvm::StringRef body = bytes.drop_back(sizeof(footer));
  if (std::memcmp(footer.magic, artifact::kFooterMagic, sizeof(footer.magic)) !=
          0 ||
      footer.bytes != body.size() ||
      footer.hash != XXH3_64bits(body.data(), body.size()))
    return std::nullopt;
  if (writesCache(mode))
    markUsed(path(key));
  return body.str();
}

std::string ArtifactCache::store(llvm::StringRef key, llvm::StringRef bytes,
                                 uint64_t most) const {
  if (!writesCache(mode))
    return {};
  if (directory.empty())
    return "neither XDG_CACHE_HOME nor HOME is set";
  auto problem = [&](const std::string &why) {
    return "'" + directory + "': " + why;
  };
  // What cannot be kept removes nothing.
  if (bytes.size() > most)
    return problem("a program of " + std::to_string(bytes.size() >> 20) +
                   " MiB is larger than the cache may be (--cache-size)");
  if (std::error_code error = llvm::sys::fs::create_directories(directory))
    return problem(error.message());
  auto temp = llvm::sys::fs::TempFile::create(path(key) + kAside);
  if (!temp)
    return problem(llvm::toString(temp.takeError()));
  {
    llvm::raw_fd_ostream out(temp->FD, /*shouldClose=*/false);
    out << bytes << artifact::appendedBytes(0, bytes).substr(bytes.size());
    out.flush();
    if (out.has_error()) {
      std::string why = out.error().message();
      out.clear_error();
      llvm::consumeError(temp->discard());
      return problem(why);
    }
  }
  if (llvm::Error error = temp->keep(path(key)))
    return problem(llvm::toString(std::move(error)));
  trim(most);
  return {};
}

void ArtifactCache::trim(uint64_t most) const {
  if (directory.empty())
    return;
  removeLeftovers(directory, kArtifactEnding);
  removeLeftovers(directory + "/" + kKernelFolder.str(), kKernelEnding);
  makeRoom(compiledFiles(directory), most);
}
