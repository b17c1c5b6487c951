#include "runtime/support/MappedFile.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace tessera {

StatusOr<MappedFile> MappedFile::open(const std::string &path) {
  // Non-blocking, so that a FIFO is refused instead of waited for.
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    return Status::error("{}: cannot open: {}", path, std::strerror(errno));
  struct stat info;
  Status status;
  MappedFile file;
  if (::fstat(descriptor, &info) != 0) {
    status = Status::error("{}: cannot stat: {}", path, std::strerror(errno));
  } else if (!S_ISREG(info.st_mode)) {
    status = Status::error("{}: not a regular file", path);
  } else if (info.st_size > 0) {
    size_t length = static_cast<size_t>(info.st_size);
    void *memory =
        ::mmap(nullptr, length, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (memory == MAP_FAILED) {
      status = Status::error("{}: cannot map {} bytes: {}", path, length,
                             std::strerror(errno));
    } else {
      file.length = length;
      file.descriptor = std::exchange(descriptor, -1);
      file.memory = std::shared_ptr<const std::byte>(
          static_cast<const std::byte *>(memory),
          [memory, length, open = file.descriptor](const std::byte *) {
            ::munmap(memory, length);
            ::close(open);
          });
    }
  }
  if (descriptor >= 0)
    ::close(descriptor);
  if (!status.ok())
    return status;
  return file;
}

void MappedFile::release(size_t offset, size_t count) const {
  // A fault maps its neighbours along: those of the same 64 KiB (Linux's
  // fault_around_bytes), since Linux 6.18 those of the same folio, which are up
  // to 2 MiB. So they go along.
  constexpr size_t window = size_t(1) << 21;
  size_t begin = std::min(offset / window * window, length);
  size_t end =
      std::min((offset + count + window - 1) / window * window, length);
  // Advice: if it is not taken, the pages merely stay.
  if (begin < end)
    (void)::madvise(const_cast<std::byte *>(memory.get()) + begin, end - begin,
                    MADV_DONTNEED);
}

Status MappedFile::copy(size_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    ssize_t count =
        ::pread(descriptor, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return Status::error("cannot read: {}", std::strerror(errno));
    if (count == 0)
      return Status::error("the file has become shorter while it was read");
    offset += static_cast<size_t>(count);
    out = out.subspan(static_cast<size_t>(count));
  }
  return Status::success();
}

} // namespace tessera
