// Weights as they lie in memory, in a file that the next start maps instead of
// reading and rounding them again: nothing is copied, and no new memory is
// asked of the system, of which a virtual machine may have to find the pages.
//
//   0      "tessera weights\n", then as u64: version, bytes of the key, of the
//          weights, hashes; the key; XXH3-64 of every kImageChunk of the
//          weights; XXH3-64 of all this
//   2 MiB  the weights
#pragma once
#include "runtime/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

namespace tessera {

/// What hashes count for, and what is written at once: whole huge pages, so
/// that the system's page cache has such.
constexpr std::size_t kImageChunk = std::size_t(16) << 20;

/// Fills `memory`, which begins on a huge page of a mapping of its own, from
/// the file, if it has a key and a size like these and all hashes are right:
/// by mapping where that gives huge pages, otherwise by reading. Pages that are
/// written later are this process's own. An error leaves memory of zeros; a
/// file that is not there is one with an empty message.
Status loadImage(const std::string &path, std::string_view key,
                 std::span<std::byte> memory);

/// Writes the file, whole or not at all, also if the process ends meanwhile;
/// one that is there is left. An error if `stop` wants it.
Status storeImage(const std::string &path, std::string_view key,
                  std::span<const std::byte> memory, std::stop_token stop);

} // namespace tessera
