#include "compiler/artifact/ArtifactWriter.h"
#include "compiler/artifact/CheckCollectives.h"
#include "compiler/artifact/WriteDevice.h"
#include "dialects/graph/GraphQuantOps.h"
#include "runtime/artifact/AppendedArtifact.h"

using namespace mlir;
using namespace tessera;
namespace fb = tessera::artifact;

static llvm::Error makeError(const llvm::Twine &message) {
  return llvm::createStringError(message);
}

static std::unique_ptr<fb::QuantizedT> quantizedOf(plan::StateOp state) {
  auto origin =
      graph::QuantizedOrigin::read(state->getAttr(graph::kQuantizedAttr));
  if (!origin)
    return nullptr;
  auto result = std::make_unique<fb::QuantizedT>();
  result->source = origin->source;
  result->part =
      origin->isScales ? fb::QuantizedPart::scales : fb::QuantizedPart::values;
  result->bits = static_cast<uint8_t>(origin->layout.bits);
  result->group = static_cast<uint32_t>(origin->layout.group);
  result->rows = origin->layout.rows;
  result->columns = origin->layout.columns;
  result->transposed = origin->transposed;
  result->zeros = origin->layout.zeros;
  result->floats = origin->layout.floats;
  result->super_blocks = origin->layout.superBlocks;
  result->stack = static_cast<uint32_t>(origin->stack);
  return result;
}

static void writeState(ModuleOp module, fb::ShareT &share) {
  for (auto state : module.getOps<plan::StateOp>()) {
    auto entry =
        makeTensor(state, state.getName(), cast<MemRefType>(state.getType()),
                   static_cast<fb::Role>(state.getRole()), fb::Space::state,
                   state.getOffset());
    entry->decay = state.getDecay();
    entry->quantized = quantizedOf(state);
    share.state_bytes = std::max<uint64_t>(
        share.state_bytes,
        llvm::alignTo(entry->offset + entry->bytes, plan::kAlignment));
    share.state.push_back(std::move(entry));
  }
}

static dist::MeshOp meshOf(ModuleOp module) {
  auto meshes = module.getOps<dist::MeshOp>();
  return meshes.empty() ? dist::MeshOp() : *meshes.begin();
}

// Checkpoints are shared by all kinds of devices, so their state must have the
// same layout.
static llvm::Error checkState(const DevicePart &first,
                              const DevicePart &other) {
  auto a = first.module, b = other.module;
  auto ours = llvm::to_vector(a.getOps<plan::StateOp>()),
       theirs = llvm::to_vector(b.getOps<plan::StateOp>());
  for (auto [mine, yours] : llvm::zip(ours, theirs))
    if (mine->getAttrs() != yours->getAttrs() ||
        mine.getType() != yours.getType())
      return makeError("devices " + first.device + " and " + other.device +
                       " have different layouts of the state '" +
                       mine.getName() + "'");
  if (ours.size() != theirs.size())
    return makeError("devices " + first.device + " and " + other.device +
                     " have different states");
  return llvm::Error::success();
}

static llvm::Expected<std::unique_ptr<fb::ShareT>>
writeShare(const SharePart &part) {
  auto share = std::make_unique<fb::ShareT>();
  share->ranks.assign(part.ranks.begin(), part.ranks.end());
  for (const DevicePart &device : part.devices) {
    auto code = writeDevice(device);
    if (!code)
      return code.takeError();
    share->devices.push_back(std::move(*code));
    if (llvm::Error error = checkState(part.devices.front(), device))
      return std::move(error);
  }
  ModuleOp module = part.devices.front().module;
  writeState(module, *share);
  if (auto offsets = module->getAttrOfType<ArrayAttr>(dist::kOffsetsAttr))
    for (auto factor : offsets.getAsRange<dist::FactorAttr>())
      share->offsets.push_back(
          makeCut(factor, meshOf(module), factor.getSize()));
  return share;
}

static llvm::Error writeMesh(llvm::ArrayRef<SharePart> shares,
                             fb::ArtifactT &artifact) {
  dist::MeshOp mesh = meshOf(shares.front().devices.front().module);
  for (const SharePart &share : shares)
    for (const DevicePart &device : share.devices) {
      dist::MeshOp other = meshOf(device.module);
      if (!mesh != !other || (mesh && mesh.getAxes() != other.getAxes()))
        return makeError(
            "the modules of the ranks were compiled for different meshes");
    }
  if (mesh)
    for (auto axis : mesh.getAxes().getAsRange<dist::AxisAttr>()) {
      auto entry = std::make_unique<fb::MeshAxisT>();
      entry->name = axis.getName().str();
      entry->size = axis.getSize();
      artifact.mesh.push_back(std::move(entry));
    }
  return llvm::Error::success();
}

static std::unique_ptr<fb::PipelineT> pipelineOf(DictionaryAttr parts) {
  auto work = [&](StringRef name) {
    ArrayRef<int64_t> flops = parts.getAs<DenseI64ArrayAttr>(name);
    return std::vector<uint64_t>(flops.begin(), flops.end());
  };
  auto pipeline = std::make_unique<fb::PipelineT>();
  pipeline->schedule = parts.getAs<StringAttr>("schedule").str();
  pipeline->forward = work("forward");
  pipeline->backward = work("backward");
  pipeline->weights = work("weights");
  return pipeline;
}

// All ranks follow one schedule.
static void writePipelines(ModuleOp module, fb::ArtifactT &artifact) {
  auto parts = module->getAttrOfType<DictionaryAttr>(dist::kPipelineAttr);
  if (!parts)
    return;
  artifact.pipeline = pipelineOf(parts);
  if (auto before = parts.getAs<ArrayAttr>("before"))
    for (auto each : before.getAsRange<DictionaryAttr>())
      artifact.pipelines_before.push_back(pipelineOf(each));
}

llvm::Expected<std::string>
tessera::writeArtifact(llvm::ArrayRef<SharePart> shares,
                       const ArtifactInfo &info) {
  fb::ArtifactT artifact;
  artifact.schema_version = fb::kSchemaVersion;
  artifact.compiler_version = info.compilerVersion;
  artifact.program_hash = info.programHash;
  artifact.model_config = info.modelConfig;
  artifact.recipe = info.recipe;
  artifact.rebuild_command = info.rebuildCommand;
  if (llvm::Error error = writeMesh(shares, artifact))
    return std::move(error);
  writePipelines(shares.front().devices.front().module, artifact);
  if (llvm::Error error = checkCollectives(shares))
    return std::move(error);
  for (const SharePart &part : shares) {
    auto share = writeShare(part);
    if (!share)
      return share.takeError();
    artifact.shares.push_back(std::move(*share));
  }
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

llvm::Expected<std::string>
tessera::writeArtifact(llvm::ArrayRef<DevicePart> parts,
                       const ArtifactInfo &info) {
  SharePart share{{}, {parts.begin(), parts.end()}};
  dist::MeshOp mesh = meshOf(parts.front().module);
  for (int64_t rank = 0; rank < (mesh ? mesh.getDeviceCount() : 1); ++rank)
    share.ranks.push_back(rank);
  return writeArtifact(llvm::ArrayRef<SharePart>(share), info);
}
