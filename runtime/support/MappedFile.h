// A read-only view of a whole file.
#pragma once
#include "runtime/support/Status.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

/// A read-only private mapping of a regular file; an empty file maps to an
/// empty span. Copies share the mapping, and the file, which the last one
/// closes. The file must not shrink while it is mapped.
class MappedFile {
public:
  static StatusOr<MappedFile> open(const std::string &path);
  std::span<const std::byte> bytes() const { return {memory.get(), length}; }
  std::string_view text() const {
    return {reinterpret_cast<const char *>(memory.get()), length};
  }
  /// Takes the pages around [offset, offset + count) out of this process's
  /// resident memory. They stay in the system's page cache: reading them again
  /// costs a page fault and is otherwise as before.
  void release(size_t offset, size_t count) const;
  /// Copies bytes from `offset` on, without a page of the mapping: none becomes
  /// resident. They must be there.
  Status copy(size_t offset, std::span<std::byte> out) const;

private:
  std::shared_ptr<const std::byte> memory;
  int descriptor = -1; ///< open as long as `memory` is
  size_t length = 0;
};

} // namespace tessera
