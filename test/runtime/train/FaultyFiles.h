// File operations that fail where a test wants them to, and remember what a
// power cut would take away.
#pragma once
#include "runtime/data/FileOperations.h"

#include <filesystem>
#include <map>
#include <set>
#include <vector>

namespace tessera::testing {

enum class Fault {
  error,     ///< the operation does nothing and reports an error
  tornWrite, ///< a write stores half of its bytes, then reports a full disk
  powerCut,  ///< the operation and all after it do nothing
};

/// Counts operations; number `at` (from 0) fails.
class FaultyFiles : public FileOperations {
public:
  FaultyFiles(uint64_t at, Fault fault) : at(at), fault(fault) {}
  uint64_t operations() const { return count; }

  StatusOr<int> create(const std::string &path) override {
    if (trips())
      return failure("create", path);
    StatusOr<int> fd = FileOperations::create(path);
    if (fd.ok()) {
      unsynced.insert(path);
      looseEntries.insert(path);
    }
    return fd;
  }
  Status write(int fd, std::span<const std::byte> bytes,
               const std::string &path) override {
    if (trips()) {
      if (fault == Fault::tornWrite)
        (void)FileOperations::write(fd, bytes.first(bytes.size() / 2), path);
      return failure("write", path);
    }
    unsynced.insert(path);
    return FileOperations::write(fd, bytes, path);
  }
  Status sync(int fd, const std::string &path) override {
    if (trips())
      return failure("sync", path);
    unsynced.erase(path);
    return FileOperations::sync(fd, path);
  }
  Status close(int fd, const std::string &path) override {
    bool fails = trips();
    Status status = FileOperations::close(fd, path); // never leak
    return fails ? failure("close", path) : status;
  }
  Status makeDirectory(const std::string &path) override {
    return trips() ? failure("create directory", path)
                   : FileOperations::makeDirectory(path);
  }
  Status syncDirectory(const std::string &path) override {
    if (trips())
      return failure("sync directory", path);
    std::erase_if(looseEntries, [&](const std::string &entry) {
      return std::filesystem::path(entry).parent_path() == path;
    });
    std::erase_if(looseRenames, [&](const auto &rename) {
      return std::filesystem::path(rename.second).parent_path() == path;
    });
    return FileOperations::syncDirectory(path);
  }
  Status rename(const std::string &from, const std::string &to) override {
    if (trips())
      return failure("rename", to);
    Status status = FileOperations::rename(from, to);
    if (status.ok()) {
      looseRenames.emplace_back(from, to);
      moveTracked(from, to);
    }
    return status;
  }
  Status removeTree(const std::string &path) override {
    if (trips())
      return failure("remove", path);
    std::erase_if(looseRenames,
                  [&](const auto &rename) { return rename.second == path; });
    return FileOperations::removeTree(path);
  }

  /// What a power cut now leaves: bytes and names that were not synced go.
  /// Renames not synced are undone, which is the harsher of two legal outcomes.
  void loseUnsynced() {
    for (auto rename = looseRenames.rbegin(); rename != looseRenames.rend();
         ++rename) {
      std::error_code ignored;
      std::filesystem::rename(rename->second, rename->first, ignored);
      moveTracked(rename->second, rename->first);
    }
    std::error_code ignored;
    for (const std::string &path : unsynced)
      if (std::filesystem::exists(path, ignored))
        std::filesystem::resize_file(
            path, std::filesystem::file_size(path, ignored) / 2, ignored);
    for (const std::string &path : looseEntries)
      std::filesystem::remove(path, ignored);
  }

private:
  bool trips() {
    uint64_t number = count++;
    return number == at || (fault == Fault::powerCut && number > at);
  }
  static Status failure(const char *what, const std::string &path) {
    return Status::error("cannot {} '{}': No space left on device", what, path);
  }
  /// Files under a renamed directory keep their debts under the new name.
  void moveTracked(const std::string &from, const std::string &to) {
    for (std::set<std::string> *tracked : {&unsynced, &looseEntries}) {
      std::set<std::string> moved;
      for (const std::string &path : *tracked)
        moved.insert(path == from || path.starts_with(from + "/")
                         ? to + path.substr(from.size())
                         : path);
      *tracked = std::move(moved);
    }
  }

  uint64_t at;
  Fault fault;
  uint64_t count = 0;
  std::set<std::string> unsynced, looseEntries;
  std::vector<std::pair<std::string, std::string>> looseRenames;
};

} // namespace tessera::testing
