#include "runtime/data/FileOperations.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tessera {
namespace {

Status systemError(const char *what, const std::string &path) {
  int code = errno;
  const char *advice = code == ENOSPC ? "; free space there and run again" : "";
  return Status::error("cannot {} '{}': {}{}", what, path, std::strerror(code),
                       advice);
}

Status syncDescriptor(int fd, const std::string &path) {
  while (::fsync(fd) != 0)
    if (errno != EINTR)
      return systemError("sync", path);
  return Status::success();
}

} // namespace

StatusOr<int> FileOperations::create(const std::string &path) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0)
    return systemError("create", path);
  return fd;
}

Status FileOperations::write(int fd, std::span<const std::byte> bytes,
                             const std::string &path) {
  // Linux moves at most 2 GiB - 4 KiB in one call; smaller pieces also keep
  // the page cache from filling with one giant dirty extent.
  constexpr std::size_t kPiece = std::size_t(64) << 20;
  while (!bytes.empty()) {
    ssize_t done = ::write(fd, bytes.data(), std::min(bytes.size(), kPiece));
    if (done < 0) {
      if (errno == EINTR)
        continue;
      return systemError("write", path);
    }
    bytes = bytes.subspan(std::size_t(done));
  }
  return Status::success();
}

Status FileOperations::sync(int fd, const std::string &path) {
  return syncDescriptor(fd, path);
}

Status FileOperations::close(int fd, const std::string &path) {
  // Linux frees the descriptor even when close reports EINTR.
  if (::close(fd) != 0 && errno != EINTR)
    return systemError("close", path);
  return Status::success();
}

Status FileOperations::makeDirectory(const std::string &path) {
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST)
    return systemError("create directory", path);
  return Status::success();
}

Status FileOperations::syncDirectory(const std::string &path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return systemError("open directory", path);
  Status status = syncDescriptor(fd, path);
  ::close(fd);
  return status;
}

Status FileOperations::rename(const std::string &from, const std::string &to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    return systemError("rename to", to);
  return Status::success();
}

Status FileOperations::removeTree(const std::string &path) {
  std::error_code code;
  std::filesystem::remove_all(path, code);
  if (code)
    return Status::error("cannot remove '{}': {}", path, code.message());
  return Status::success();
}

FileOperations &systemFiles() {
  static FileOperations files;
  return files;
}

StatusOr<DurableFile> DurableFile::create(FileOperations &files,
                                          std::string path) {
  StatusOr<int> fd = files.create(path);
  if (!fd.ok())
    return fd.status();
  return DurableFile(files, std::move(path), *fd);
}

DurableFile::DurableFile(DurableFile &&other) noexcept
    : files(other.files), path(std::move(other.path)), fd(other.fd) {
  other.fd = -1;
}

DurableFile::~DurableFile() {
  if (fd >= 0)
    (void)files.close(fd, path);
}

Status DurableFile::write(std::span<const std::byte> bytes) {
  return files.write(fd, bytes, path);
}

Status DurableFile::write(std::string_view text) {
  return write(std::as_bytes(std::span(text.data(), text.size())));
}

Status DurableFile::finish() {
  TESSERA_RETURN_IF_ERROR(files.sync(fd, path));
  int closing = fd;
  fd = -1;
  return files.close(closing, path);
}

Status replaceFile(FileOperations &files, const std::string &directory,
                   const std::string &name, std::string_view text) {
  std::string partial = directory + "/.tmp-" + name;
  TESSERA_RETURN_IF_ERROR(files.removeTree(partial));
  StatusOr<DurableFile> file = DurableFile::create(files, partial);
  if (!file.ok())
    return file.status();
  TESSERA_RETURN_IF_ERROR(file->write(text));
  TESSERA_RETURN_IF_ERROR(file->finish());
  TESSERA_RETURN_IF_ERROR(files.rename(partial, directory + "/" + name));
  return files.syncDirectory(directory);
}

StatusOr<std::string> readFile(const std::string &path, std::size_t limit) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return systemError("read", path);
  std::string text;
  char piece[1 << 16];
  Status status;
  for (;;) {
    ssize_t done = ::read(fd, piece, sizeof piece);
    if (done < 0 && errno == EINTR)
      continue;
    if (done < 0)
      status = systemError("read", path);
    if (done <= 0)
      break;
    if (text.size() + std::size_t(done) > limit) {
      status = Status::error("'{}' is larger than {} bytes, which is the most "
                             "that is read of such a file",
                             path, limit);
      break;
    }
    text.append(piece, std::size_t(done));
  }
  ::close(fd);
  if (!status.ok())
    return status;
  return text;
}

} // namespace tessera
