#include "compiler/Cache.h"
#include "runtime/artifact/AppendedArtifact.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdlib>

using namespace tessera;

std::optional<CacheMode> tessera::parseCacheMode(llvm::StringRef text) {
  return llvm::StringSwitch<std::optional<CacheMode>>(text)
      .Case("off", CacheMode::off)
      .Case("on", CacheMode::on)
      .Case("redo", CacheMode::redo)
      .Case("readonly", CacheMode::readonly)
      .Default(std::nullopt);
}

static std::string cacheDirectory() {
  llvm::SmallString<128> path;
  if (const char *base = std::getenv("XDG_CACHE_HOME"); base && *base)
    path = base;
  else if (!llvm::sys::path::cache_directory(path))
    return "";
  llvm::sys::path::append(path, "tessera");
  return path.str().str();
}

Cache::Cache(CacheMode mode) : mode(mode), directory(cacheDirectory()) {}

std::string Cache::path(llvm::StringRef key) const {
  llvm::SmallString<128> path(directory);
  llvm::sys::path::append(path, key + ".tsr");
  return path.str().str();
}

// The compiler's own bytes: a rebuilt compiler never reads what another wrote.
static std::uint64_t hashOfThisProgram() {
  static const std::uint64_t hash = [] {
    auto self = llvm::MemoryBuffer::getFile("/proc/self/exe");
    return self ? XXH3_64bits((*self)->getBufferStart(),
                              (*self)->getBufferSize())
                : 0;
  }();
  return hash;
}

std::string Cache::key(llvm::ArrayRef<llvm::StringRef> parts) {
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

std::optional<std::string> Cache::load(llvm::StringRef key) const {
  if (directory.empty() || mode == CacheMode::off || mode == CacheMode::redo)
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
  return body.str();
}

void Cache::store(llvm::StringRef key, llvm::StringRef bytes) const {
  if (directory.empty() || mode == CacheMode::off ||
      mode == CacheMode::readonly)
    return;
  if (llvm::sys::fs::create_directories(directory))
    return;
  auto temp = llvm::sys::fs::TempFile::create(path(key) + ".%%%%%%");
  if (!temp) {
    llvm::consumeError(temp.takeError());
    return;
  }
  {
    llvm::raw_fd_ostream out(temp->FD, /*shouldClose=*/false);
    out << bytes << artifact::appendedBytes(0, bytes).substr(bytes.size());
    out.flush();
    if (out.has_error()) {
      out.clear_error();
      llvm::consumeError(temp->discard());
      return;
    }
  }
  llvm::consumeError(temp->keep(path(key)));
}
