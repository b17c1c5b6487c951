#include "runtime/train/RunDirectory.h"
#include "runtime/artifact/AppendedArtifact.h"
#include "runtime/support/MappedFile.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tessera {
namespace fs = std::filesystem;

StatusOr<std::string> readOrigin(const std::string &run) {
  const std::string path = run + "/" + kOriginFile;
  std::error_code code;
  if (!fs::exists(path, code))
    return code ? StatusOr<std::string>(Status::error("cannot read '{}': {}",
                                                      path, code.message()))
                : std::string();
  constexpr std::size_t kMostBytes = 1 << 16;
  return readFile(path, kMostBytes);
}

namespace {
constexpr const char *kLockFile = ".lock";

/// Whether the file is still that of the directory.
StatusOr<bool> isLockOf(int fd, const std::string &lockPath) {
  struct stat own, there;
  if (::fstat(fd, &own) != 0 || ::stat(lockPath.c_str(), &there) != 0) {
    if (errno == ENOENT)
      return false;
    return Status::error("cannot read '{}': {}", lockPath,
                         std::strerror(errno));
  }
  return own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

/// The locked file of a directory; -1 if another process has removed the file,
/// with a run that wrote nothing, before it was locked here.
StatusOr<int> lockFileOf(const std::string &path) {
  const std::string lockPath = fmt::format("{}/{}", path, kLockFile);
  const int fd = ::open(lockPath.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0 && errno == ENOENT)
    return -1;
  if (fd < 0)
    return Status::error("cannot write to the run directory '{}': {}", path,
                         std::strerror(errno));
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
    const StatusOr<bool> isThere = isLockOf(fd, lockPath);
    if (isThere.ok() && *isThere)
      return fd;
    ::close(fd);
    return isThere.ok() ? StatusOr<int>(-1) : isThere.status();
  }
  ::close(fd);
  return Status::error("another process is training in '{}'; wait for it or "
                       "choose another --out",
                       path);
}

} // namespace

StatusOr<RunDirectory> RunDirectory::open(const std::string &path) {
  std::error_code code;
  bool isNew = false;
  int lock = -1;
  constexpr int kMostTries = 100;
  for (int i = 0; lock < 0; ++i) {
    if (i == kMostTries)
      return Status::error("cannot lock the run directory '{}': '{}' there "
                           "is not a file, or is removed again and again",
                           path, kLockFile);
    isNew |= fs::create_directories(path, code);
    if (code)
      return Status::error("cannot create the run directory '{}': {}", path,
                           code.message());
    StatusOr<int> locked = lockFileOf(path);
    if (!locked.ok())
      return locked.status();
    lock = *locked;
  }
  RunDirectory run(path, lock, isNew);
  fs::directory_iterator entries(path, code), end;
  for (; !code && entries != end; entries.increment(code)) {
    std::string name = entries->path().filename().string();
    if (name.starts_with(".tmp-"))
      TESSERA_RETURN_IF_ERROR(
          systemFiles().removeTree(fmt::format("{}/{}", path, name)));
  }
  if (code)
    return Status::error("cannot list the run directory '{}': {}", path,
                         code.message());
  return run;
}

RunDirectory::RunDirectory(RunDirectory &&other) noexcept
    : directory(std::move(other.directory)), lock(other.lock),
      isNew(other.isNew) {
  other.lock = -1;
}

// While it is locked: see lockFileOf. Errors leave what is there.
void RunDirectory::removeIfEmpty() {
  const std::string lockPath = fmt::format("{}/{}", directory, kLockFile);
  if (const StatusOr<bool> isThere = isLockOf(lock, lockPath);
      !isThere.ok() || !*isThere)
    return;
  std::error_code code;
  fs::directory_iterator entries(directory, code), end;
  for (; !code && entries != end; entries.increment(code))
    if (entries->path().filename() != kLockFile)
      return;
  if (code)
    return;
  fs::remove(lockPath, code);
  if (isNew)
    fs::remove(directory, code);
}

RunDirectory::~RunDirectory() {
  if (lock < 0)
    return;
  removeIfEmpty();
  ::close(lock); // which also unlocks
}

StatusOr<DataLayout> findData(const std::string &data,
                              const std::string &evalData) {
  std::error_code code;
  if (!fs::is_directory(data, code))
    return Status::error("cannot read the token directory '{}': {}; make one "
                         "with tessera data tokenize or tessera data chat",
                         data, code ? code.message() : "it is not a directory");
  DataLayout layout;
  bool nested = fs::is_directory(data + "/train", code);
  layout.train = nested ? data + "/train" : data;
  if (!evalData.empty())
    layout.eval = evalData;
  else if (nested && fs::is_directory(data + "/eval", code))
    layout.eval = data + "/eval";
  for (const std::string &folder : {data, data + "/.."}) {
    std::string path = folder + "/" + kTokenizerFile;
    if (layout.tokenizer.empty() && fs::exists(path, code))
      layout.tokenizer = path;
  }
  return layout;
}

StatusOr<std::string> programFileOf(const std::string &source) {
  StatusOr<MappedFile> file = MappedFile::open(source);
  if (!file.ok())
    return file.status();
  std::string_view text = file->text();
  artifact::Footer footer;
  if (text.size() < artifact::kFooterBytes)
    return Status::error("'{}' holds no program", source);
  std::memcpy(&footer, text.data() + text.size() - artifact::kFooterBytes,
              artifact::kFooterBytes);
  uint64_t room = text.size() - artifact::kFooterBytes;
  if (std::memcmp(footer.magic, artifact::kFooterMagic, 8) != 0 ||
      footer.offset > room || footer.bytes != room - footer.offset)
    return Status::error("'{}' holds no program", source);
  return artifact::appendedBytes(0, text.substr(footer.offset, footer.bytes));
}

} // namespace tessera
