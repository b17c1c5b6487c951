#include "runtime/weights/WeightsImage.h"
#include "runtime/data/FileOperations.h"
#include "runtime/support/Hash.h"
#include "runtime/weights/CopyTensor.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <random>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tessera {
namespace {

constexpr std::size_t kHugePage = std::size_t(2) << 20;
constexpr std::string_view kMagic = "tessera weights\n";
constexpr uint64_t kVersion = 1;

/// A descriptor that closes itself.
class Descriptor {
public:
  explicit Descriptor(int fd) : fd(fd) {}
  Descriptor(const Descriptor &) = delete;
  ~Descriptor() {
    if (fd >= 0)
      ::close(fd);
  }
  operator int() const { return fd; }

private:
  int fd;
};

std::size_t chunksOf(std::size_t bytes) {
  return (bytes + kImageChunk - 1) / kImageChunk;
}

/// All of the file before the weights, or nothing if it has no room there.
std::string headOf(std::string_view key, std::size_t bytes,
                   std::span<const uint64_t> hashes) {
  std::string head(kMagic);
  auto add = [&](uint64_t number) {
    head.append(reinterpret_cast<const char *>(&number), sizeof number);
  };
  for (uint64_t number : {kVersion, uint64_t(key.size()), uint64_t(bytes),
                          uint64_t(hashes.size())})
    add(number);
  head += key;
  for (uint64_t hash : hashes)
    add(hash);
  add(hash64(std::as_bytes(std::span(head))));
  return head.size() <= kHugePage ? head : std::string();
}

StatusOr<std::vector<uint64_t>> hashesOf(std::span<const std::byte> memory) {
  std::vector<uint64_t> hashes(chunksOf(memory.size()));
  Status status =
      inParallel(uint32_t(hashes.size()), [&](uint32_t i, unsigned) -> Status {
        const std::size_t at = i * kImageChunk;
        hashes[i] = hash64(
            memory.subspan(at, std::min(kImageChunk, memory.size() - at)));
        return Status::success();
      });
  if (!status.ok())
    return status;
  return hashes;
}

Status readFrom(int fd, std::size_t offset, std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t count =
        ::pread(fd, to.data(), to.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return Status::error("cannot be read: {}", count < 0
                                                     ? std::strerror(errno)
                                                     : "it is too short");
    offset += std::size_t(count);
    to = to.subspan(std::size_t(count));
  }
  return Status::success();
}

Status writeTo(int fd, std::size_t offset, std::span<const std::byte> from) {
  while (!from.empty()) {
    const ssize_t count =
        ::pwrite(fd, from.data(), from.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return Status::error("cannot be written: {}", std::strerror(errno));
    offset += std::size_t(count);
    from = from.subspan(std::size_t(count));
  }
  return Status::success();
}

Status mapOver(std::span<std::byte> memory, int fd, int flags, off_t offset) {
  if (!memory.empty() &&
      ::mmap(memory.data(), memory.size(), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_FIXED | flags, fd, offset) == MAP_FAILED)
    return Status::error("cannot be mapped: {}", std::strerror(errno));
  // Advice only, as in HostMemory.
  if (memory.size() >= kHugePage)
    (void)::madvise(memory.data(), memory.size(), MADV_HUGEPAGE);
  return Status::success();
}

/// New memory, of zeros.
Status mapNothing(std::span<std::byte> memory) {
  return mapOver(memory, -1, MAP_ANONYMOUS, 0);
}

/// Bytes of the mapping that begins at `memory` which are in huge pages, as
/// Linux tells it (proc(5), smaps).
std::size_t bytesInHugePages(std::span<const std::byte> memory) {
  std::ifstream file("/proc/self/smaps");
  std::size_t found = 0;
  bool inside = false;
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  for (std::string line; std::getline(file, line);) {
    uintptr_t first = 0, last = 0;
    const char *end = line.data() + line.size();
    auto [rest, error] = std::from_chars(line.data(), end, first, 16);
    constexpr std::string_view kHuge = "FilePmdMapped:";
    if (error == std::errc() && rest != end && *rest == '-' &&
        std::from_chars(rest + 1, end, last, 16).ec == std::errc()) {
      inside = first >= begin && first < begin + memory.size();
    } else if (inside && line.starts_with(kHuge)) {
      const auto digit = line.find_first_not_of(' ', kHuge.size());
      std::size_t kib = 0;
      if (digit != std::string::npos)
        std::from_chars(line.data() + digit, end, kib);
      found += kib * 1024;
    }
  }
  return found;
}

/// The hashes of a file that is what it should be.
StatusOr<std::vector<uint64_t>> readHead(int fd, std::string_view key,
                                         std::size_t bytes) {
  struct stat info;
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) ||
      std::size_t(info.st_size) < kHugePage + bytes)
    return Status::error("is too short");
  std::vector<uint64_t> hashes(chunksOf(bytes));
  std::string head(headOf(key, bytes, hashes).size(), '\0');
  if (head.empty())
    return Status::error("has no room for so many tensors");
  TESSERA_RETURN_IF_ERROR(
      readFrom(fd, 0, std::as_writable_bytes(std::span(head))));
  const std::size_t at = head.size() - (hashes.size() + 1) * sizeof(uint64_t);
  std::memcpy(hashes.data(), head.data() + at,
              hashes.size() * sizeof(uint64_t));
  if (head != headOf(key, bytes, hashes))
    return Status::error("is of other weights, or damaged");
  return hashes;
}

/// Maps whole huge pages, and reads the rest.
Status fill(int fd, std::span<std::byte> memory,
            std::span<const uint64_t> hashes) {
  const std::size_t whole = memory.size() / kHugePage * kHugePage;
  const auto pages = memory.first(whole);
  TESSERA_RETURN_IF_ERROR(mapOver(pages, fd, 0, off_t(kHugePage)));
  TESSERA_RETURN_IF_ERROR(
      readFrom(fd, kHugePage + whole, memory.subspan(whole)));
  auto found = hashesOf(memory);
  if (!found.ok())
    return found.status();
  if (!std::ranges::equal(*found, hashes))
    return Status::error("is damaged");
  // Small pages cost every token more than reading costs once.
  if (bytesInHugePages(pages) >= whole - whole / 8)
    return Status::success();
  TESSERA_RETURN_IF_ERROR(mapNothing(pages));
  return inParallel(
      uint32_t(chunksOf(whole)), [&](uint32_t i, unsigned) -> Status {
        const std::size_t at = i * kImageChunk;
        TESSERA_RETURN_IF_ERROR(
            readFrom(fd, kHugePage + at,
                     pages.subspan(at, std::min(kImageChunk, whole - at))));
        // The last chunk ends after the pages, with the rest that was read
        // above.
        const auto chunk =
            memory.subspan(at, std::min(kImageChunk, memory.size() - at));
        return hash64(chunk) == hashes[i] ? Status::success()
                                          : Status::error("is damaged");
      });
}

/// The fields that precede the key.
struct HeadSizes {
  uint64_t version, keyBytes, bytes, hashes;
};

} // namespace

//===--- reading ----------------------------------------------------------===//

StatusOr<ImageHead> parseImageHead(std::string_view text, uint64_t fileBytes) {
  constexpr std::size_t fixed = kMagic.size() + sizeof(HeadSizes);
  auto damaged = [] { return Status::error("is damaged"); };
  HeadSizes sizes;
  if (text.size() < fixed + sizeof(uint64_t) || !text.starts_with(kMagic))
    return Status::error("has no weights");
  std::memcpy(&sizes, text.data() + kMagic.size(), sizeof sizes);
  if (sizes.version != kVersion)
    return Status::error("has weights of version {}, and this program reads "
                         "{}; compile it again",
                         sizes.version, kVersion);
  // Each is compared alone first: sums of what a file says may overflow.
  if (sizes.bytes == 0 || fileBytes < kHugePage ||
      sizes.bytes > fileBytes - kHugePage ||
      sizes.hashes != chunksOf(sizes.bytes) || sizes.keyBytes > text.size() ||
      sizes.hashes > text.size() / sizeof(uint64_t))
    return damaged();
  const std::size_t hashesAt = fixed + sizes.keyBytes,
                    hashBytes = sizes.hashes * sizeof(uint64_t);
  if (hashesAt + hashBytes + sizeof(uint64_t) > text.size())
    return damaged();
  ImageHead head{std::string(text.substr(fixed, sizes.keyBytes)), sizes.bytes,
                 std::vector<uint64_t>(sizes.hashes)};
  std::memcpy(head.hashes.data(), text.data() + hashesAt, hashBytes);
  const std::string right = headOf(head.key, head.bytes, head.hashes);
  if (right.empty() || !text.starts_with(right))
    return damaged();
  return head;
}

bool isImage(const std::string &path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string magic(kMagic.size(), '\0');
  return fd >= 0 &&
         readFrom(fd, 0, std::as_writable_bytes(std::span(magic))).ok() &&
         magic == kMagic;
}

StatusOr<ImageHead> readImageHead(const std::string &path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info;
  if (fd < 0 || ::fstat(fd, &info) != 0)
    return Status::error("'{}' cannot be opened: {}", path,
                         std::strerror(errno));
  if (!S_ISREG(info.st_mode))
    return Status::error("'{}' is not a regular file", path);
  std::string text(std::min(std::size_t(info.st_size), kHugePage), '\0');
  Status status = readFrom(fd, 0, std::as_writable_bytes(std::span(text)));
  if (!status.ok())
    return Status::error("'{}' {}", path, status.message());
  auto head = parseImageHead(text, uint64_t(info.st_size));
  if (!head.ok())
    return Status::error("'{}' {}", path, head.message());
  return head;
}

Status
readImage(const std::string &path, const ImageHead &head,
          const std::function<Status(uint64_t offset,
                                     std::span<const std::byte> bytes)> &take) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd < 0)
    return Status::error("'{}' cannot be opened: {}", path,
                         std::strerror(errno));
  std::vector<std::byte> chunk;
  for (std::size_t i = 0; i < head.hashes.size(); ++i) {
    const uint64_t at = i * kImageChunk;
    chunk.resize(std::min<uint64_t>(kImageChunk, head.bytes - at));
    Status status = readFrom(fd, kHugePage + at, chunk);
    if (status.ok() && hash64(chunk) != head.hashes[i])
      status = Status::error("is damaged");
    if (!status.ok())
      return Status::error("'{}' {}", path, status.message());
    TESSERA_RETURN_IF_ERROR(take(at, chunk));
  }
  return Status::success();
}

Status loadImage(const std::string &path, std::string_view key,
                 std::span<std::byte> memory) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd < 0)
    return errno == ENOENT ? Status::error("")
                           : Status::error("'{}' cannot be opened: {}", path,
                                           std::strerror(errno));
  auto hashes = readHead(fd, key, memory.size());
  if (!hashes.ok())
    return Status::error("'{}' {}", path, hashes.message());
  Status status = fill(fd, memory, *hashes);
  if (status.ok())
    return status;
  TESSERA_RETURN_IF_ERROR(
      mapNothing(memory.first(memory.size() / kHugePage * kHugePage)));
  std::ranges::fill(memory.subspan(memory.size() / kHugePage * kHugePage),
                    std::byte(0));
  return Status::error("'{}' {}", path, status.message());
}

//===--- writing ----------------------------------------------------------===//

Status storeImage(const std::string &path, std::string_view key,
                  std::span<const std::byte> memory, std::stop_token stop) {
  const std::string folder = path.substr(0, path.rfind('/'));
  auto failed = [&](std::string_view why) {
    return Status::error("'{}' {}", path, why);
  };
  // A file without a name: nothing is left of it if the process ends.
  const Descriptor fd(
      ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd < 0)
    return failed(fmt::format("cannot be made: {}", std::strerror(errno)));
  std::vector<uint64_t> hashes;
  std::vector<std::byte> chunk;
  for (std::size_t at = 0; at < memory.size(); at += kImageChunk) {
    if (stop.stop_requested())
      return failed("was not finished");
    const auto part =
        memory.subspan(at, std::min(kImageChunk, memory.size() - at));
    // A copy: slots of adapters may be filled meanwhile, and what is written
    // must be what was hashed.
    chunk.assign(part.begin(), part.end());
    hashes.push_back(hash64(chunk));
    if (Status status = writeTo(fd, kHugePage + at, chunk); !status.ok())
      return failed(status.message());
  }
  const std::string head = headOf(key, memory.size(), hashes);
  if (head.empty())
    return failed("has no room for so many tensors");
  if (Status status = writeTo(fd, 0, std::as_bytes(std::span(head)));
      !status.ok())
    return failed(status.message());
  const std::string self = fmt::format("/proc/self/fd/{}", int(fd));
  if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, path.c_str(),
               AT_SYMLINK_FOLLOW) != 0 &&
      errno != EEXIST)
    return failed(fmt::format("cannot be named: {}", std::strerror(errno)));
  return Status::success();
}

NewImage::NewImage(std::string path, std::span<std::byte> memory, int fd,
                   std::string hidden)
    : path(std::move(path)), hidden(std::move(hidden)), weights(memory), fd(fd),
      end(kHugePage + memory.size()) {}

StatusOr<std::unique_ptr<NewImage>>
NewImage::create(const std::string &path, uint64_t bytes, bool mayBeUnnamed) {
  const std::filesystem::path place(path);
  const std::string folder =
      place.has_parent_path() ? place.parent_path().string() : ".";
  std::random_device random;
  std::string hidden =
      fmt::format("{}/.{}.{:08x}{:08x}", folder, place.filename().string(),
                  random(), random());
  // A file without a name: nothing is left of it if the process ends.
  int fd = -1;
  if (mayBeUnnamed)
    fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  const bool isNamed = fd < 0; // some file systems have no such files
  if (isNamed)
    fd = ::open(hidden.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
  if (fd < 0)
    return Status::error("'{}' cannot be made: {}", path, std::strerror(errno));
  std::unique_ptr<NewImage> image(
      new NewImage(path, {}, fd, std::move(hidden)));
  image->isNamed = isNamed;
  // Or a full disk would be a signal when the memory is written.
  if (int error = ::posix_fallocate(fd, 0, off_t(kHugePage + bytes)))
    return Status::error("'{}' has no room for {} MB of weights: {}", path,
                         (bytes + 999'999) / 1'000'000, std::strerror(error));
  void *memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                        off_t(kHugePage));
  if (memory == MAP_FAILED)
    return Status::error("'{}' cannot be mapped: {}", path,
                         std::strerror(errno));
  image->weights = {static_cast<std::byte *>(memory), bytes};
  image->end = kHugePage + bytes;
  return image;
}

NewImage::~NewImage() {
  if (!weights.empty())
    ::munmap(weights.data(), weights.size());
  if (isNamed)
    ::unlink(hidden.c_str());
  ::close(fd);
}

Status NewImage::append(std::string_view text) {
  Status status = writeTo(fd, end, std::as_bytes(std::span(text)));
  end += text.size();
  return status.ok() ? status
                     : Status::error("'{}' {}", path, status.message());
}

Status NewImage::finish(std::string_view key) {
  auto failed = [&](std::string_view what) {
    return Status::error("'{}' {}: {}", path, what, std::strerror(errno));
  };
  auto hashes = hashesOf(weights);
  if (!hashes.ok())
    return hashes.status();
  const std::string head = headOf(key, weights.size(), *hashes);
  if (head.empty())
    return Status::error("'{}' has no room for so many files", path);
  if (Status status = writeTo(fd, 0, std::as_bytes(std::span(head)));
      !status.ok())
    return Status::error("'{}' {}", path, status.message());
  if (::fsync(fd) != 0)
    return failed("cannot be written");
  const std::string self = fmt::format("/proc/self/fd/{}", fd);
  if (!isNamed) {
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, hidden.c_str(),
                 AT_SYMLINK_FOLLOW) != 0)
      return failed("cannot be named");
    isNamed = true;
  }
  if (::rename(hidden.c_str(), path.c_str()) != 0)
    return failed("cannot be named");
  isNamed = false;
  return systemFiles().syncDirectory(hidden.substr(0, hidden.rfind('/')));
}

} // namespace tessera
