// A file with the memory image of a model's weights. The next start maps it
// instead of converting the checkpoint again: nothing is copied and no new
// memory is allocated, which is slow in a virtual machine whose host must
// supply the pages.
//
//   0      "tessera weights\n", then as u64: version, bytes of the key, of the
//          weights, hashes; the key; XXH3-64 of every kImageChunk of the
//          weights; XXH3-64 of all this
//   2 MiB  the weights
//   …      whatever else the file holds (PackagedModel.h)
#pragma once
#include "runtime/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// What hashes count for, and what is written at once: whole huge pages, so
/// that the system's page cache has such.
constexpr std::size_t kImageChunk = std::size_t(16) << 20;

/// Whether the file begins as such files do.
bool isImage(const std::string &path);

/// Everything before the weights.
struct ImageHead {
  std::string key;
  uint64_t bytes = 0;           ///< of the weights
  std::vector<uint64_t> hashes; ///< of every kImageChunk of them
};
/// Reads and checks the head of an untrusted file: its sizes are valid and the
/// file has as many bytes of weights. An error is one line with the path.
StatusOr<ImageHead> readImageHead(const std::string &path);
/// The same from the first bytes of a file of `fileBytes`; errors continue
/// after its name.
StatusOr<ImageHead> parseImageHead(std::string_view text, uint64_t fileBytes);

/// Passes the weights to `take`, chunk by chunk, each after its hash was
/// checked.
Status
readImage(const std::string &path, const ImageHead &head,
          const std::function<Status(uint64_t offset,
                                     std::span<const std::byte> bytes)> &take);

/// Fills `memory`, which begins on a huge page of a mapping of its own, from
/// the file, if it has a key and a size like these and all hashes are right: by
/// mapping if that gives huge pages, otherwise by reading. Pages that are
/// written later are private. An error leaves memory of zeros; a missing file
/// is an error with an empty message.
Status loadImage(const std::string &path, std::string_view key,
                 std::span<std::byte> memory);

/// Writes the file, completely or not at all, also if the process ends during
/// it; an existing file is kept. An error if `stop` is requested.
Status storeImage(const std::string &path, std::string_view key,
                  std::span<const std::byte> memory, std::stop_token stop);

/// A file whose mapped weights are written in place, so that they need no other
/// memory. It has no name before finish(), or that of a hidden file in the same
/// directory if the file system does not support unnamed files.
class NewImage {
public:
  /// An error if the disk has no room.
  static StatusOr<std::unique_ptr<NewImage>>
  create(const std::string &path, uint64_t bytes, bool mayBeUnnamed = true);
  ~NewImage();
  NewImage(const NewImage &) = delete;

  /// The weights; zeros at first.
  std::span<std::byte> memory() { return weights; }
  /// Bytes of the file so far.
  uint64_t size() const { return end; }
  /// What follows the weights.
  Status append(std::string_view text);
  /// The file has its name when this returns, and is on the disk; one that had
  /// it is replaced.
  Status finish(std::string_view key);

private:
  NewImage(std::string path, std::span<std::byte> memory, int fd,
           std::string hidden);

  std::string path, hidden; // the final and the hidden name
  std::span<std::byte> weights;
  int fd;
  uint64_t end;
  bool isNamed = false; // `hidden` exists
};

} // namespace tessera
