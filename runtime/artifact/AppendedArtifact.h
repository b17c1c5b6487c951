// The file layout of an artifact, for the compiler that writes it and the
// runtime that reads it. This header depends on nothing of either.
//
//   prefix    nothing (a .tsr file), the executable that will run it, or a
//             model's weights and other files
//             (runtime/generate/PackagedModel.h)
//   padding   zero bytes up to a multiple of kArtifactAlignment
//   artifact  the finished FlatBuffer of Artifact.fbs
//   footer    the last kFooterBytes of the file
//
// Both kinds of file end in the footer, so truncation and flipped bits are
// found before any offset of the artifact is followed.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

namespace tessera::artifact {

/// The value of Artifact.schema_version. It rises when an artifact of the old
/// schema would be misread; a new optional field does not raise it, so a
/// runtime is to be at least as new as the compiler: an older one passes over
/// fields that it does not know.
inline constexpr std::uint32_t kSchemaVersion = 4;

/// Offset of the artifact in the file, and of every buffer in its space.
inline constexpr std::uint64_t kArtifactAlignment = 64;

/// Integers are little-endian.
struct Footer {
  std::uint64_t offset; ///< of the artifact in the file
  std::uint64_t bytes;  ///< of the artifact; the footer follows at once
  std::uint64_t hash;   ///< XXH3-64 of the artifact's bytes
  char magic[8];        ///< kFooterMagic
};
inline constexpr std::size_t kFooterBytes = sizeof(Footer);
inline constexpr char kFooterMagic[9] = "TSRAFOOT";
static_assert(kFooterBytes == 32);
static_assert(std::endian::native == std::endian::little,
              "the footer is written in its memory layout");

/// The footer of an artifact that starts at `offset` of its file.
inline Footer makeFooter(std::uint64_t offset, std::string_view artifact) {
  Footer footer{offset,
                artifact.size(),
                XXH3_64bits(artifact.data(), artifact.size()),
                {}};
  std::memcpy(footer.magic, kFooterMagic, sizeof(footer.magic));
  return footer;
}

/// What follows the first `prefixBytes` of a file: padding, artifact, footer.
/// With prefixBytes = 0 it is a whole .tsr file.
inline std::string appendedBytes(std::uint64_t prefixBytes,
                                 std::string_view artifact) {
  const std::uint64_t padding =
      (kArtifactAlignment - prefixBytes % kArtifactAlignment) %
      kArtifactAlignment;
  const Footer footer = makeFooter(prefixBytes + padding, artifact);
  std::string bytes(padding, '\0');
  bytes.reserve(padding + artifact.size() + kFooterBytes);
  bytes.append(artifact);
  bytes.append(reinterpret_cast<const char *>(&footer), kFooterBytes);
  return bytes;
}

} // namespace tessera::artifact
