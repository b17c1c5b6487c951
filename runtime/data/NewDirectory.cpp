#include "runtime/data/NewDirectory.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

namespace tessera {

namespace fs = std::filesystem;

namespace {
class FileSink final : public SafetensorsSink {
public:
  explicit FileSink(DurableFile &file) : file(file) {}
  Status write(std::span<const std::byte> bytes) override {
    return file.write(bytes);
  }

private:
  DurableFile &file;
};

constexpr std::string_view kPartial = ".tmp-", kDoomed = ".del-";
static_assert(kPartial.size() == kDoomed.size());

fs::path placeOf(const std::string &directory) {
  fs::path place = fs::path(directory).lexically_normal();
  return place.has_filename() ? place : place.parent_path(); // "out/" is "out"
}

fs::path folderAbove(const fs::path &place) {
  return place.has_parent_path() ? place.parent_path() : ".";
}

/// The temporary directory that is written and then renamed. Process ids repeat
/// if containers share a volume, so the name has random digits, too.
std::string partialOf(const fs::path &place) {
  return (folderAbove(place) / fmt::format("{}{}-{}-{:08x}", kPartial,
                                           place.filename().string(),
                                           ::getpid(), std::random_device()()))
      .string();
}

//===--- signals ----------------------------------------------------------===//

constexpr std::array kEndings = {SIGINT, SIGTERM, SIGHUP};
// For the handler.
std::array<char, PATH_MAX> unfinished, doomed;
std::array<struct sigaction, kEndings.size()> before;
std::atomic<bool> interrupted = false;
std::atomic<int> handlers = 0; ///< that are removing
static_assert(std::atomic<int>::is_always_lock_free);

/// Where a signal's handler moves what it removes: as long as the other name.
std::string doomedOf(const std::string &partial) {
  std::string path = partial;
  path.replace(path.find_last_of('/') + 1, kPartial.size(), kDoomed);
  return path;
}

/// Of a folder that has only files. Nothing in here allocates or locks: it is
/// called by a signal's handler, on whichever thread, while another may be
/// about to give the folder its name. Who renames it first has it.
void removeUnfinished() {
  if (::rename(unfinished.data(), doomed.data()) != 0)
    return;
  int folder = ::open(doomed.data(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0)
    return;
  alignas(dirent64) std::array<char, 4096> entries;
  constexpr int kTries = 100; // another thread may begin one more file
  for (int i = 0; i < kTries; ++i) {
    ::lseek(folder, 0, SEEK_SET);
    for (ssize_t bytes = 0;
         (bytes = ::getdents64(folder, entries.data(), entries.size())) > 0;)
      for (ssize_t at = 0; at < bytes;) {
        auto *entry = reinterpret_cast<dirent64 *>(entries.data() + at);
        ::unlinkat(folder, entry->d_name, 0); // "." and ".." are refused
        at += entry->d_reclen;
      }
    if (::rmdir(doomed.data()) == 0 || errno == ENOENT)
      break;
  }
  ::close(folder);
}

void onSignal(int signal) {
  const int error = errno;
  ++handlers;
  interrupted = true;
  removeUnfinished();
  for (std::size_t i = 0; i < kEndings.size(); ++i)
    if (kEndings[i] == signal)
      ::sigaction(signal, &before[i], nullptr);
  --handlers;
  ::raise(signal); // for the previous handler, when this one returns
  errno = error;
}

/// On other threads; nothing is to be left.
void waitForHandlers() {
  while (handlers > 0)
    std::this_thread::yield();
}

/// What a handler has moved but could not remove, for want of descriptors say.
void removeDoomed(const std::string &partial) {
  if (!interrupted)
    return;
  waitForHandlers();
  (void)systemFiles().removeTree(doomedOf(partial));
}

/// As long as it lives a signal removes the folder before it does what it would
/// have done: it ends the process, or is handled by others. One that is ignored
/// stays so.
class RemovedBySignals {
public:
  explicit RemovedBySignals(const std::string &folder) {
    interrupted = false;
    if (folder.size() >= unfinished.size())
      return;
    std::memcpy(unfinished.data(), folder.c_str(), folder.size() + 1);
    std::memcpy(doomed.data(), doomedOf(folder).c_str(), folder.size() + 1);
    for (std::size_t i = 0; i < kEndings.size(); ++i) {
      if (::sigaction(kEndings[i], nullptr, &before[i]) != 0 ||
          before[i].sa_handler == SIG_IGN)
        continue;
      struct sigaction ours = {};
      ours.sa_handler = onSignal;
      sigfillset(&ours.sa_mask);
      taken[i] = ::sigaction(kEndings[i], &ours, nullptr) == 0;
    }
  }
  ~RemovedBySignals() {
    waitForHandlers();
    for (std::size_t i = 0; i < kEndings.size(); ++i)
      if (taken[i])
        ::sigaction(kEndings[i], &before[i], nullptr);
  }
  RemovedBySignals(const RemovedBySignals &) = delete;
  RemovedBySignals &operator=(const RemovedBySignals &) = delete;

private:
  std::array<bool, kEndings.size()> taken{};
};
} // namespace

Status checkNewDirectory(const std::string &directory) {
  fs::path place = placeOf(directory);
  std::error_code code;
  if (place.empty() || fs::exists(fs::symlink_status(place, code)))
    return Status::error("'{}' is there already; choose another directory",
                         directory);
  const fs::path above = folderAbove(place);
  if (!fs::is_directory(above, code))
    return Status::error("'{}' cannot be made: directory '{}' does not exist; "
                         "create it first, or choose another",
                         directory, above.string());
  // Only creating one shows whether one can be created.
  const std::string partial = partialOf(place);
  const RemovedBySignals guard(partial);
  if (!fs::create_directory(partial, code))
    return Status::error("'{}' cannot be made in '{}': {}; choose another "
                         "directory",
                         directory, above.string(), code.message());
  Status status = systemFiles().removeTree(partial);
  removeDoomed(partial);
  return status;
}

Status
makeNewDirectory(const std::string &directory,
                 const std::function<Status(const std::string &)> &fill) {
  FileOperations &files = systemFiles();
  TESSERA_RETURN_IF_ERROR(checkNewDirectory(directory));
  fs::path place = placeOf(directory);
  const std::string partial = partialOf(place);
  const RemovedBySignals guard(partial);
  Status status = files.makeDirectory(partial);
  if (status.ok())
    status = fill(partial);
  if (status.ok())
    status = files.syncDirectory(partial);
  bool isNamed = false;
  if (status.ok() && !interrupted) {
    status = files.rename(partial, place.string());
    isNamed = status.ok();
  }
  if (!isNamed) {
    (void)files.removeTree(partial); // the error that counts is the first one
    removeDoomed(partial);
    if (interrupted) // and the signal's handler returned
      return Status::error("'{}' is not made: a signal came meanwhile",
                           directory);
    return status;
  }
  return files.syncDirectory(folderAbove(place).string());
}

Status writeNewFile(const std::string &path, std::string_view text) {
  auto file = DurableFile::create(systemFiles(), path);
  if (!file.ok())
    return file.status();
  TESSERA_RETURN_IF_ERROR(file->write(text));
  return file->finish();
}

Status writeNewSafetensors(const std::string &path,
                           std::vector<SafetensorsTensor> tensors) {
  auto file = DurableFile::create(systemFiles(), path);
  if (!file.ok())
    return file.status();
  FileSink sink(*file);
  // "pt" is what transformers asks of a file that it is to load.
  TESSERA_RETURN_IF_ERROR(
      writeSafetensors(sink, std::move(tensors), {{"format", "pt"}}));
  return file->finish();
}

} // namespace tessera
