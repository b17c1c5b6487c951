// The file operations that make a run's files durable, as an interface, so that
// a test can inject a failure, a torn write or a power cut at each.
#pragma once
#include "runtime/support/Status.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

/// Every call names the path in its error. Nothing here retries: the caller
/// knows what a failure means for the files already written.
class FileOperations {
public:
  virtual ~FileOperations() = default;
  /// Creates a file for writing; fails if the path exists.
  virtual StatusOr<int> create(const std::string &path);
  /// Writes all of `bytes` at the file's end.
  virtual Status write(int fd, std::span<const std::byte> bytes,
                       const std::string &path);
  /// fsync: the file's bytes survive a power cut once this succeeded.
  virtual Status sync(int fd, const std::string &path);
  virtual Status close(int fd, const std::string &path);
  virtual Status makeDirectory(const std::string &path);
  /// fsync of a directory: its entries survive a power cut.
  virtual Status syncDirectory(const std::string &path);
  virtual Status rename(const std::string &from, const std::string &to);
  /// Removes a file or a whole directory; a path that is absent is a success.
  virtual Status removeTree(const std::string &path);
};

/// The operating system's operations.
FileOperations &systemFiles();

/// A file being written; closes itself, and never pretends that an unsynced
/// file is durable: call finish().
class DurableFile {
public:
  static StatusOr<DurableFile> create(FileOperations &files, std::string path);
  DurableFile(DurableFile &&other) noexcept;
  DurableFile &operator=(DurableFile &&) = delete;
  ~DurableFile();
  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);
  /// fsync and close.
  Status finish();

private:
  DurableFile(FileOperations &files, std::string path, int fd)
      : files(files), path(std::move(path)), fd(fd) {}
  FileOperations &files;
  std::string path;
  int fd;
};

/// Replaces `directory`/`name` by `text` so that a reader, or the next start
/// after a power cut, sees the old file or the new one and never a part.
Status replaceFile(FileOperations &files, const std::string &directory,
                   const std::string &name, std::string_view text);

/// Reads a whole file of at most `limit` bytes.
StatusOr<std::string> readFile(const std::string &path, std::size_t limit);

} // namespace tessera
