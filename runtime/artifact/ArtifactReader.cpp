#include "runtime/artifact/ArtifactReader.h"

#include "runtime/artifact/AppendedArtifact.h"
#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/Shares.h"
#include "runtime/artifact/Validate.h"
#include "runtime/support/Hash.h"

#include <algorithm>

namespace tessera {
namespace {

using artifact::Footer;
using artifact::kFooterBytes;

/// Finds the artifact in a file by its footer and checks that it is whole.
StatusOr<Footer> locate(std::span<const std::byte> file,
                        const std::string &path) {
  if (file.size() < kFooterBytes)
    return Status::error("{}: {} bytes are too few for an artifact: the file "
                         "is truncated or is not an artifact",
                         path, file.size());
  const std::uint64_t footerOffset = file.size() - kFooterBytes;
  Footer footer;
  std::memcpy(&footer, file.data() + footerOffset, kFooterBytes);
  if (std::memcmp(footer.magic, artifact::kFooterMagic, sizeof(footer.magic)) !=
      0)
    return Status::error("{}: offset {:#x}: no artifact footer: the file is "
                         "truncated or carries no artifact",
                         path, footerOffset);
  if (footer.offset > footerOffset ||
      footer.bytes != footerOffset - footer.offset)
    return Status::error(
        "{}: offset {:#x}: the footer puts {} bytes at {:#x}, which does not "
        "end where the footer starts: the file is damaged; copy or compile it "
        "again",
        path, footerOffset, footer.bytes, footer.offset);
  if (footer.offset % artifact::kArtifactAlignment != 0)
    return Status::error("{}: offset {:#x}: the footer's artifact offset {:#x} "
                         "is not a multiple of {}",
                         path, footerOffset, footer.offset,
                         artifact::kArtifactAlignment);
  const std::uint64_t hash = hash64(file.subspan(footer.offset, footer.bytes));
  if (hash != footer.hash)
    return Status::error(
        "{}: offset {:#x}: the artifact's hash is {:016x}, its footer says "
        "{:016x}: the file is damaged; copy or compile it again",
        path, footer.offset, hash, footer.hash);
  return footer;
}

} // namespace

StatusOr<ArtifactReader> ArtifactReader::open(const std::string &path) {
  auto file = MappedFile::open(path);
  if (!file.ok())
    return file.status();
  ArtifactReader reader;
  reader.file = file.take();
  reader.name = path;
  const auto footer = locate(reader.file.bytes(), path);
  if (!footer.ok())
    return footer.status();
  TESSERA_RETURN_IF_ERROR(
      reader.load(reader.file.bytes().subspan(footer->offset, footer->bytes),
                  footer->offset));
  return reader;
}

StatusOr<ArtifactReader>
ArtifactReader::fromBytes(std::span<const std::byte> bytes, std::string name) {
  ArtifactReader reader;
  reader.name = std::move(name);
  TESSERA_RETURN_IF_ERROR(reader.load(bytes, 0));
  return reader;
}

Status ArtifactReader::load(std::span<const std::byte> bytes,
                            std::uint64_t fileOffset) {
  // 8 bytes are the least that hold a root offset and the identifier.
  if (bytes.size() < 8 || bytes.size() >= FLATBUFFERS_MAX_BUFFER_SIZE)
    return Status::error("{}: offset {:#x}: an artifact of {} bytes is out of "
                         "bounds",
                         name, fileOffset, bytes.size());
  const auto *data = reinterpret_cast<const std::uint8_t *>(bytes.data());
  if (!artifact::ArtifactBufferHasIdentifier(data))
    return Status::error("{}: offset {:#x}: not an artifact: identifier '{}' "
                         "is missing",
                         name, fileOffset + 4, artifact::ArtifactIdentifier());
  // Every table that the verifier visits is reached through an offset of four
  // bytes of its own, unless tables are shared: so this bound costs no honest
  // artifact anything and keeps shared ones from exploding.
  const auto maxTables = static_cast<flatbuffers::uoffset_t>(bytes.size() / 4);
  flatbuffers::Verifier verifier(data, bytes.size(), /*max_depth=*/64,
                                 maxTables);
  if (!artifact::VerifyArtifactBuffer(verifier))
    return Status::error("{}: offset {:#x}: the artifact is not a well-formed "
                         "FlatBuffer of schema version {}: compile it again "
                         "with this version's compiler",
                         name, fileOffset, artifact::kSchemaVersion);
  artifact = artifact::GetArtifact(data);
  whole = {reinterpret_cast<const char *>(data), bytes.size()};
  TESSERA_RETURN_IF_ERROR(
      artifact::validate(*artifact, {name, bytes.data(), fileOffset}));
  own = artifact::findShare(*artifact, ownRank);
  return Status::success();
}

StatusOr<ArtifactReader> ArtifactReader::forRank(std::uint32_t rank) const {
  ArtifactReader reader = *this;
  reader.ownRank = rank;
  reader.own = artifact::findShare(*artifact, rank);
  if (!reader.own)
    return Status::error("{}: rank {} is not among the {} that it was compiled "
                         "for",
                         name, rank, artifact::Mesh(*artifact).ranks());
  return reader;
}

const artifact::Share *artifact::findShare(const Artifact &artifact,
                                           std::uint32_t rank) {
  for (const Share *share : *artifact.shares())
    if (std::binary_search(share->ranks()->begin(), share->ranks()->end(),
                           rank))
      return share;
  return nullptr;
}

const artifact::Program *artifact::findProgram(const DeviceCode &code,
                                               std::string_view name) {
  for (const Program *program : *code.programs())
    if (toView(program->name()) == name)
      return program;
  return nullptr;
}

bool artifact::holds(const CodeObject &object, std::uint32_t kernel) {
  const auto *kernels = object.kernels();
  return !kernels ||
         std::find(kernels->begin(), kernels->end(), kernel) != kernels->end();
}

const artifact::DeviceCode *
ArtifactReader::device(std::string_view kind) const {
  for (const artifact::DeviceCode *code : *own->devices())
    if (artifact::toView(code->device()) == kind)
      return code;
  return nullptr;
}

std::string ArtifactReader::deviceKinds() const {
  std::string kinds;
  for (const artifact::DeviceCode *code : *own->devices())
    kinds.append(kinds.empty() ? "" : ", ")
        .append(artifact::toView(code->device()));
  return kinds;
}

bool ArtifactReader::hasProgram(std::string_view name) const {
  return artifact::findProgram(*own->devices()->Get(0), name) != nullptr;
}

std::string ArtifactReader::programNames() const {
  std::string names;
  for (const artifact::Program *program : *own->devices()->Get(0)->programs())
    names.append(names.empty() ? "" : ", ")
        .append(artifact::toView(program->name()));
  return names;
}

} // namespace tessera
