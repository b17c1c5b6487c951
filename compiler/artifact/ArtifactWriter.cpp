#include "compiler/artifact/ArtifactWriter.h"
#include "compiler/artifact/WriteDevice.h"
#include "runtime/artifact/AppendedArtifact.h"

using namespace mlir;
using namespace tessera;
namespace fb = tessera::artifact;

static llvm::Error complain(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

static void writeState(ModuleOp module, fb::ArtifactT &artifact) {
  for (auto state : module.getOps<plan::StateOp>()) {
    auto entry = makeTensor(state.getName(), cast<MemRefType>(state.getType()),
                            static_cast<fb::Role>(state.getRole()),
                            fb::Space::state, state.getOffset());
    entry->decay = state.getDecay();
    artifact.state_bytes = std::max<uint64_t>(
        artifact.state_bytes,
        llvm::alignTo(entry->offset + entry->bytes, plan::kAlignment));
    artifact.state.push_back(std::move(entry));
  }
}

// A checkpoint belongs to all kinds of devices, so they keep the same state in
// the same places.
static llvm::Error checkState(const DevicePart &first,
                              const DevicePart &other) {
  auto a = first.module, b = other.module;
  auto ours = llvm::to_vector(a.getOps<plan::StateOp>()),
       theirs = llvm::to_vector(b.getOps<plan::StateOp>());
  for (auto [mine, yours] : llvm::zip(ours, theirs))
    if (mine->getAttrs() != yours->getAttrs() ||
        mine.getType() != yours.getType())
      return complain("devices " + first.device + " and " + other.device +
                      " have different plans for the state '" + mine.getName() +
                      "'");
  if (ours.size() != theirs.size())
    return complain("devices " + first.device + " and " + other.device +
                    " have different states");
  return llvm::Error::success();
}

llvm::Expected<std::string>
tessera::writeArtifact(llvm::ArrayRef<DevicePart> parts,
                       const ArtifactInfo &info) {
  fb::ArtifactT artifact;
  artifact.schema_version = fb::kSchemaVersion;
  artifact.compiler_version = info.compilerVersion;
  artifact.program_hash = info.programHash;
  artifact.model_config = info.modelConfig;
  artifact.recipe = info.recipe;
  artifact.rebuild_command = info.rebuildCommand;
  for (const DevicePart &part : parts) {
    auto device = writeDevice(part);
    if (!device)
      return device.takeError();
    artifact.devices.push_back(std::move(*device));
    if (llvm::Error error = checkState(parts.front(), part))
      return std::move(error);
  }
  writeState(parts.front().module, artifact);
  for (const auto &[name, text] : info.sources) {
    auto entry = std::make_unique<fb::SourceT>();
    entry->name = name;
    entry->text = text;
    artifact.sources.push_back(std::move(entry));
  }
  flatbuffers::FlatBufferBuilder builder(1 << 20);
  builder.Finish(fb::Artifact::Pack(builder, &artifact),
                 fb::ArtifactIdentifier());
  return std::string(reinterpret_cast<const char *>(builder.GetBufferPointer()),
                     builder.GetSize());
}
