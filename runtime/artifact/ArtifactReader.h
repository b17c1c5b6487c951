// Opens an artifact and proves it before anything is used.
#pragma once
#include "runtime/artifact/Artifact_generated.h"
#include "runtime/support/MappedFile.h"
#include "runtime/support/Status.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

/// A verified artifact. After open() succeeds every offset, index, length and
/// shape in root() may be followed without a further check (Validate.h lists
/// the checks); machine code is not checked. Copies share the mapping; root()
/// lives as long as any copy. A reader represents one rank of the artifact's
/// mesh, the first one unless forRank() made it.
class ArtifactReader {
public:
  /// Opens a .tsr file, or an executable with an appended artifact. An error
  /// names the file, the offset in it and the cause; one about the artifact's
  /// contents ends with the command that rebuilds it.
  static StatusOr<ArtifactReader> open(const std::string &path);

  /// Reads a bare FlatBuffer without footer, which must outlive the reader and
  /// be aligned to 16 bytes. `name` replaces the path in errors. For tests and
  /// for a compiler that checks its own output.
  static StatusOr<ArtifactReader> fromBytes(std::span<const std::byte> bytes,
                                            std::string name);

  const artifact::Artifact &root() const { return *artifact; }
  const std::string &path() const { return name; }
  /// Bytes of the artifact, without prefix and footer.
  std::size_t bytes() const { return whole.size(); }
  /// These bytes, as long as any copy of the reader lives.
  std::string_view text() const { return whole; }

  /// The same for another rank. An error if the mesh has fewer.
  StatusOr<ArtifactReader> forRank(std::uint32_t rank) const;
  std::uint32_t rank() const { return ownRank; }
  /// What the rank holds and runs.
  const artifact::Share &share() const { return *own; }

  /// What there is for devices of that kind ("cpu", "cuda:sm_80"), or null.
  const artifact::DeviceCode *device(std::string_view kind) const;
  /// The kinds of devices, separated by commas, for errors.
  std::string deviceKinds() const;

  /// Whether there is a program of that name: every kind of device has the
  /// same ones.
  bool hasProgram(std::string_view name) const;
  /// The programs' names, separated by commas, for errors.
  std::string programNames() const;

private:
  Status load(std::span<const std::byte> bytes, std::uint64_t fileOffset);

  MappedFile file;
  std::string name;
  std::string_view whole;
  const artifact::Artifact *artifact = nullptr;
  std::uint32_t ownRank = 0;
  const artifact::Share *own = nullptr;
};

namespace artifact {
/// What the rank holds and runs, or null.
const Share *findShare(const Artifact &artifact, std::uint32_t rank);
/// The program of that name, or null.
const Program *findProgram(const DeviceCode &code, std::string_view name);
/// Whether the object has the kernel of that index.
bool holds(const CodeObject &object, std::uint32_t kernel);
} // namespace artifact

} // namespace tessera
