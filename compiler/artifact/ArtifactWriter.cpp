#include "compiler/artifact/ArtifactWriter.h"
#include "dialects/plan/PlanOps.h"
#include "dialects/tile/TileOps.h"
#include "runtime/artifact/AppendedArtifact.h"
#include "runtime/artifact/Artifact_generated.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace tessera;
namespace fb = tessera::artifact;

namespace {

llvm::Error complain(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

std::optional<fb::ElementType> elementType(Type type) {
  if (type.isF32())
    return fb::ElementType::f32;
  if (type.isBF16())
    return fb::ElementType::bf16;
  if (type.isF16())
    return fb::ElementType::f16;
  if (type.isF64())
    return fb::ElementType::f64;
  if (type.isUnsignedInteger(8))
    return fb::ElementType::u8;
  if (!type.isSignlessInteger())
    return std::nullopt;
  switch (type.getIntOrFloatBitWidth()) {
  case 64:
    return fb::ElementType::i64;
  case 32:
    return fb::ElementType::i32;
  case 16:
    return fb::ElementType::i16;
  case 8:
    return fb::ElementType::i8;
  case 1:
    return fb::ElementType::i1;
  }
  return std::nullopt;
}

/// The place that a memref value stands for: bytes of a space, and how far the
/// address moves with each enclosing loop.
struct Address {
  plan::BufferOp root;
  int64_t offset = 0;
  llvm::SmallDenseMap<Operation *, int64_t> strides; // plan.loop → bytes a turn
};

Address resolve(Value memory) {
  Address address;
  while (auto view = memory.getDefiningOp<plan::ViewOp>()) {
    address.offset += view.getOffset();
    if (Value induction = view.getInduction())
      address
          .strides[cast<BlockArgument>(induction).getOwner()->getParentOp()] +=
          *view.getStride();
    memory = view.getSource();
  }
  address.root = memory.getDefiningOp<plan::BufferOp>();
  address.offset += address.root.getOffset();
  return address;
}

class Writer {
public:
  Writer(ModuleOp module, llvm::ArrayRef<CodeObject> code,
         const ArtifactInfo &info)
      : module(module), code(code), info(info) {}

  llvm::Expected<std::string> write();

private:
  llvm::Error collectKernels();
  llvm::Error checkElementTypes();
  fb::ArgT arg(Value memory, llvm::ArrayRef<plan::LoopOp> loops);
  std::unique_ptr<fb::TensorT> tensor(StringRef name, MemRefType type,
                                      fb::Role role, fb::Space space,
                                      int64_t offset);
  std::vector<std::unique_ptr<fb::NodeT>>
  steps(Block &block, SmallVectorImpl<plan::LoopOp> &loops);
  std::unique_ptr<fb::LaunchT> launch(plan::LaunchOp op,
                                      llvm::ArrayRef<plan::LoopOp> loops);
  std::unique_ptr<fb::ProgramT> program(plan::ProgramOp op);
  std::unique_ptr<fb::KernelT> kernel(tile::KernelOp op);

  ModuleOp module;
  llvm::ArrayRef<CodeObject> code;
  const ArtifactInfo &info;
  llvm::MapVector<StringRef, tile::KernelOp>
      kernels; // in order of first launch
};

// Nested name of the location that an op came from: "transformer.h.3.attn".
std::string originOf(Location loc) {
  std::string origin;
  loc->walk([&](Location inner) {
    if (auto name = dyn_cast<NameLoc>(inner)) {
      origin = name.getName().str();
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return origin;
}

llvm::Error Writer::collectKernels() {
  llvm::StringMap<tile::KernelOp> all;
  module.walk([&](tile::KernelOp kernel) {
    all.try_emplace(kernel.getSymName(), kernel);
  });
  std::string missing;
  module.walk([&](plan::LaunchOp launch) {
    if (tile::KernelOp kernel = all.lookup(launch.getKernel()))
      kernels.insert({kernel.getSymName(), kernel});
    else
      missing = launch.getKernel().str();
  });
  if (!missing.empty())
    return complain("kernel '" + missing +
                    "' is launched but no target has it");
  return llvm::Error::success();
}

llvm::Error Writer::checkElementTypes() {
  std::string wrong;
  auto check = [&](MemRefType type, Location loc) {
    if (!elementType(type.getElementType()))
      llvm::raw_string_ostream(wrong) << type << " (" << originOf(loc) << ")";
  };
  module.walk([&](plan::BufferOp op) {
    check(cast<MemRefType>(op.getMemory().getType()), op.getLoc());
  });
  module.walk([&](plan::StateOp op) {
    check(cast<MemRefType>(op.getType()), op.getLoc());
  });
  if (!wrong.empty())
    return complain("the artifact cannot hold a tensor of type " + wrong);
  return llvm::Error::success();
}

fb::ArgT Writer::arg(Value memory, llvm::ArrayRef<plan::LoopOp> loops) {
  Address address = resolve(memory);
  fb::ArgT result;
  result.space = static_cast<fb::Space>(address.root.getSpace());
  result.offset = address.offset;
  result.bytes = plan::byteSize(cast<MemRefType>(memory.getType()));
  for (plan::LoopOp loop : loops)
    result.loop_strides.push_back(address.strides.lookup(loop));
  return result;
}

std::unique_ptr<fb::TensorT> Writer::tensor(StringRef name, MemRefType type,
                                            fb::Role role, fb::Space space,
                                            int64_t offset) {
  auto result = std::make_unique<fb::TensorT>();
  result->name = name.str();
  result->type = *elementType(type.getElementType());
  result->shape.assign(type.getShape().begin(), type.getShape().end());
  result->role = role;
  result->space = space;
  result->offset = offset;
  result->bytes = plan::byteSize(type);
  return result;
}

std::unique_ptr<fb::LaunchT>
Writer::launch(plan::LaunchOp op, llvm::ArrayRef<plan::LoopOp> loops) {
  auto result = std::make_unique<fb::LaunchT>();
  result->kernel = std::distance(kernels.begin(), kernels.find(op.getKernel()));
  size_t instances = op.getBlocks().size();
  size_t buffers = op.getBuffers().size() / instances,
         sizes = op.getSizes().size() / instances;
  for (size_t i = 0; i < instances; ++i) {
    auto instance = std::make_unique<fb::InstanceT>();
    for (Value memory : op.getBuffers().slice(i * buffers, buffers))
      instance->args.push_back(std::make_unique<fb::ArgT>(arg(memory, loops)));
    for (int64_t size : op.getSizes().slice(i * sizes, sizes))
      instance->sizes.push_back(size);
    instance->blocks = op.getBlocks()[i];
    result->instances.push_back(std::move(instance));
  }
  return result;
}

std::vector<std::unique_ptr<fb::NodeT>>
Writer::steps(Block &block, SmallVectorImpl<plan::LoopOp> &loops) {
  std::vector<std::unique_ptr<fb::NodeT>> nodes;
  for (Operation &op : block) {
    fb::StepUnion step;
    if (auto l = dyn_cast<plan::LaunchOp>(op)) {
      step.Set(std::move(*launch(l, loops)));
    } else if (auto loop = dyn_cast<plan::LoopOp>(op)) {
      fb::LoopT body;
      body.trip = loop.getTrip();
      loops.push_back(loop);
      body.body = steps(loop.getBody().front(), loops);
      loops.pop_back();
      step.Set(std::move(body));
    } else if (auto copy = dyn_cast<plan::CopyOp>(op)) {
      fb::CopyT body;
      body.from = std::make_unique<fb::ArgT>(arg(copy.getFrom(), loops));
      body.to = std::make_unique<fb::ArgT>(arg(copy.getTo(), loops));
      step.Set(std::move(body));
    } else if (auto fill = dyn_cast<plan::FillOp>(op)) {
      fb::FillT body;
      body.to = std::make_unique<fb::ArgT>(arg(fill.getTo(), loops));
      body.value = static_cast<uint8_t>(fill.getValue());
      step.Set(std::move(body));
    } else {
      continue;
    }
    auto node = std::make_unique<fb::NodeT>();
    node->step = std::move(step);
    node->origin = originOf(op.getLoc());
    nodes.push_back(std::move(node));
  }
  return nodes;
}

// One number of a type that people read; anything else is just an output.
static bool isMetric(MemRefType type) {
  Type element = type.getElementType();
  return type.getRank() == 0 &&
         (element.isF32() || element.isF64() || element.isInteger(32) ||
          element.isInteger(64));
}

std::unique_ptr<fb::ProgramT> Writer::program(plan::ProgramOp op) {
  auto result = std::make_unique<fb::ProgramT>();
  result->name = op.getSymName().str();
  result->arena_bytes = op.getArena();
  result->io_bytes = op.getIo();
  result->model_flops = op.getFlops();
  for (auto buffer : op.getOps<plan::BufferOp>()) {
    if (buffer.getSpace() != plan::Space::io)
      continue;
    auto type = cast<MemRefType>(buffer.getMemory().getType());
    bool input = *buffer.getRole() == plan::Role::input;
    fb::Role role = input            ? fb::Role::input
                    : isMetric(type) ? fb::Role::metric
                                     : fb::Role::output;
    (input ? result->inputs : result->outputs)
        .push_back(tensor(*buffer.getName(), type, role, fb::Space::io,
                          buffer.getOffset()));
  }
  SmallVector<plan::LoopOp> loops;
  result->steps = steps(op.getBody().front(), loops);
  return result;
}

std::unique_ptr<fb::KernelT> Writer::kernel(tile::KernelOp op) {
  auto result = std::make_unique<fb::KernelT>();
  result->name = op.getSymName().str();
  for (size_t i = 0, e = op.getAccess().size(); i < e; ++i)
    result->access.push_back(static_cast<fb::Access>(op.getBufferAccess(i)));
  for (Value buffer : op.getBuffers())
    if (auto type =
            elementType(cast<MemRefType>(buffer.getType()).getElementType()))
      result->element_types.push_back(*type);
  if (result->element_types.size() != result->access.size())
    result->element_types.clear(); // all or none
  result->dynamic_sizes = op.getDynamicSizes();
  for (const CodeObject &object : code)
    result->scratch_bytes = std::max<uint64_t>(
        result->scratch_bytes, object.scratch.lookup(op.getSymName()));
  result->summary = op.getSummary().str();
  return result;
}

llvm::Expected<std::string> Writer::write() {
  if (llvm::Error error = collectKernels())
    return error;
  if (llvm::Error error = checkElementTypes())
    return error;
  fb::ArtifactT artifact;
  artifact.schema_version = fb::kSchemaVersion;
  artifact.compiler_version = info.compilerVersion;
  artifact.program_hash = info.programHash;
  artifact.model_config = info.modelConfig;
  artifact.recipe = info.recipe;
  artifact.rebuild_command = info.rebuildCommand;
  for (auto state : module.getOps<plan::StateOp>()) {
    auto entry = tensor(state.getName(), cast<MemRefType>(state.getType()),
                        static_cast<fb::Role>(state.getRole()),
                        fb::Space::state, state.getOffset());
    entry->decay = state.getDecay();
    artifact.state_bytes = std::max<uint64_t>(
        artifact.state_bytes,
        llvm::alignTo(entry->offset + entry->bytes, plan::kAlignment));
    artifact.state.push_back(std::move(entry));
  }
  for (auto op : module.getOps<plan::ProgramOp>())
    artifact.programs.push_back(program(op));
  for (auto &[name, op] : kernels)
    artifact.kernels.push_back(kernel(op));
  for (const CodeObject &object : code) {
    auto entry = std::make_unique<fb::CodeObjectT>();
    entry->target = object.target;
    entry->features = object.features;
    entry->elf.assign(object.elf.begin(), object.elf.end());
    artifact.code.push_back(std::move(entry));
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

} // namespace

llvm::Expected<std::string>
tessera::writeArtifact(ModuleOp module, llvm::ArrayRef<CodeObject> code,
                       const ArtifactInfo &info) {
  return Writer(module, code, info).write();
}
