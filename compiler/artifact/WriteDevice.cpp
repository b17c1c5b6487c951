#include "compiler/artifact/WriteDevice.h"
#include "compiler/artifact/BufferUses.h"
#include "compiler/artifact/KernelTraffic.h"
#include "dialects/graph/GraphOps.h"
#include "dialects/graph/Origin.h"
#include "dialects/tile/KernelBlocks.h"
#include "passes/kernels/Tiling.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace tessera;
namespace fb = tessera::artifact;

namespace {

llvm::Error makeError(const llvm::Twine &message) {
  return llvm::createStringError(message);
}

} // namespace

std::optional<fb::ElementType> tessera::elementType(Type type) {
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

namespace {

/// The address of a memref value: bytes in a space, and the stride of each
/// enclosing loop.
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

class DeviceWriter {
public:
  explicit DeviceWriter(const DevicePart &part)
      : part(part), module(part.module) {}

  llvm::Expected<std::unique_ptr<fb::DeviceCodeT>> write();

private:
  llvm::Error collectKernels();
  llvm::Error checkElementTypes();
  llvm::Error checkAlignment();
  /// Why a launch of that kernel may not have the buffer; empty if it may.
  std::string misalignment(StringRef kernel, unsigned buffer, Value memory);
  fb::ArgT arg(Value memory, llvm::ArrayRef<plan::LoopOp> loops);
  std::vector<std::unique_ptr<fb::NodeT>>
  steps(Block &block, SmallVectorImpl<plan::LoopOp> &loops);
  std::unique_ptr<fb::LaunchT> launch(plan::LaunchOp op,
                                      llvm::ArrayRef<plan::LoopOp> loops);
  fb::CollectiveT collective(plan::CollectiveOp op,
                             llvm::ArrayRef<plan::LoopOp> loops);
  std::unique_ptr<fb::ProgramT> program(plan::ProgramOp op);
  std::vector<std::unique_ptr<fb::BufferT>> buffers(plan::ProgramOp op);
  std::unique_ptr<fb::KernelT> kernel(tile::KernelOp op);
  /// Those that passed the gates.
  SmallVector<StringRef> variantsOf(tile::KernelOp kernel) const;
  /// Null for an object of which no kernel is launched.
  std::unique_ptr<fb::CodeObjectT> codeObject(const CodeObject &object);
  uint32_t indexOf(StringRef kernel) const {
    return std::distance(kernels.begin(), kernels.find(kernel));
  }

  const DevicePart &part;
  ModuleOp module;
  llvm::MapVector<StringRef, tile::KernelOp>
      kernels;                             // in order of first launch
  llvm::DenseMap<Value, uint32_t> tickets; // of started collectives, from 1
};

SmallVector<StringRef> DeviceWriter::variantsOf(tile::KernelOp kernel) const {
  SmallVector<StringRef> names;
  if (auto variants = kernel->getAttrOfType<ArrayAttr>(kKernelVariantsAttr))
    for (auto variant : variants.getAsRange<FlatSymbolRefAttr>())
      if (part.gpu.contains(variant.getValue()))
        names.push_back(variant.getValue());
  return names;
}

llvm::Error DeviceWriter::collectKernels() {
  llvm::StringMap<tile::KernelOp> all;
  module.walk([&](tile::KernelOp kernel) {
    all.try_emplace(kernel.getSymName(), kernel);
  });
  std::string missing;
  module.walk([&](plan::LaunchOp launch) {
    SmallVector<StringRef> names{launch.getKernel()};
    if (tile::KernelOp kernel = all.lookup(launch.getKernel()))
      llvm::append_range(names, variantsOf(kernel));
    for (StringRef name : names)
      if (tile::KernelOp kernel = all.lookup(name))
        kernels.insert({kernel.getSymName(), kernel});
      else
        missing = name.str();
  });
  if (!missing.empty())
    return makeError("kernel '" + missing +
                     "' is launched but no target has it");
  return llvm::Error::success();
}

std::string DeviceWriter::misalignment(StringRef kernel, unsigned buffer,
                                       Value memory) {
  constexpr int64_t kAlignment = 16;
  auto gpu = part.gpu.find(kernel);
  if (gpu == part.gpu.end() || !gpu->second.aligned.count(buffer))
    return "";
  Address address = resolve(memory);
  int64_t by = address.offset % kAlignment;
  for (auto [loop, stride] : address.strides)
    by = by ? by : stride % kAlignment;
  if (!by)
    return "";
  return ("kernel '" + kernel + "' copies 16 bytes at a time from buffer " +
          llvm::Twine(buffer) + ", which a launch lets begin " +
          llvm::Twine(by) + " bytes after a multiple of 16")
      .str();
}

llvm::Error DeviceWriter::checkAlignment() {
  std::string wrong;
  module.walk([&](plan::LaunchOp launch) {
    unsigned buffers = launch.getBuffers().size() / launch.getBlocks().size();
    SmallVector<StringRef> names{launch.getKernel()};
    llvm::append_range(names, variantsOf(kernels.lookup(launch.getKernel())));
    for (auto [i, memory] : llvm::enumerate(launch.getBuffers()))
      for (StringRef name : names)
        if (wrong.empty())
          wrong = misalignment(name, i % buffers, memory);
  });
  return wrong.empty() ? llvm::Error::success() : makeError(wrong);
}

llvm::Error DeviceWriter::checkElementTypes() {
  std::string wrong;
  auto check = [&](MemRefType type, Location loc) {
    if (!elementType(type.getElementType()))
      llvm::raw_string_ostream(wrong)
          << type << " (" << graph::originOf(loc) << ")";
  };
  module.walk([&](plan::BufferOp op) {
    check(cast<MemRefType>(op.getMemory().getType()), op.getLoc());
  });
  module.walk([&](plan::StateOp op) {
    check(cast<MemRefType>(op.getType()), op.getLoc());
  });
  if (!wrong.empty())
    return makeError("the artifact cannot hold a tensor of type " + wrong);
  return llvm::Error::success();
}

fb::ArgT DeviceWriter::arg(Value memory, llvm::ArrayRef<plan::LoopOp> loops) {
  Address address = resolve(memory);
  fb::ArgT result;
  result.space = static_cast<fb::Space>(address.root.getSpace());
  result.offset = address.offset;
  result.bytes = plan::byteSize(cast<MemRefType>(memory.getType()));
  for (plan::LoopOp loop : loops)
    result.loop_strides.push_back(address.strides.lookup(loop));
  return result;
}

std::unique_ptr<fb::LaunchT>
DeviceWriter::launch(plan::LaunchOp op, llvm::ArrayRef<plan::LoopOp> loops) {
  auto result = std::make_unique<fb::LaunchT>();
  result->kernel = indexOf(op.getKernel());
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

fb::CollectiveT DeviceWriter::collective(plan::CollectiveOp op,
                                         llvm::ArrayRef<plan::LoopOp> loops) {
  fb::CollectiveT result = makeCollective(op);
  result.from = std::make_unique<fb::ArgT>(arg(op.getFrom(), loops));
  result.to = std::make_unique<fb::ArgT>(arg(op.getTo(), loops));
  if (op.getRows()) {
    result.rows = std::make_unique<fb::ArgT>(arg(op.getRows(), loops));
    result.width = cast<MemRefType>(op.getFrom().getType()).getDimSize(1);
  }
  if (op.getTicket()) {
    result.ticket = tickets.size() + 1;
    tickets[op.getTicket()] = result.ticket;
  }
  return result;
}

std::vector<std::unique_ptr<fb::NodeT>>
DeviceWriter::steps(Block &block, SmallVectorImpl<plan::LoopOp> &loops) {
  std::vector<std::unique_ptr<fb::NodeT>> nodes;
  for (Operation &op : block) {
    fb::StepUnion step;
    if (auto l = dyn_cast<plan::LaunchOp>(op)) {
      step.Set(std::move(*launch(l, loops)));
    } else if (auto loop = dyn_cast<plan::LoopOp>(op)) {
      fb::LoopT body;
      body.trip = loop.getTrip();
      if (loop.getCount())
        body.count = std::make_unique<fb::ArgT>(arg(loop.getCount(), loops));
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
    } else if (auto one = dyn_cast<plan::CollectiveOp>(op)) {
      step.Set(collective(one, loops));
    } else if (auto wait = dyn_cast<plan::WaitOp>(op)) {
      fb::WaitT body;
      body.ticket = tickets.lookup(wait.getTicket());
      step.Set(std::move(body));
    } else {
      continue; // a place
    }
    auto node = std::make_unique<fb::NodeT>();
    node->step = std::move(step);
    node->origin = graph::originOf(op.getLoc());
    if (auto layer = op.getAttrOfType<graph::LayerAttr>(graph::kLayerAttr)) {
      node->layer = layer.getIndex();
      node->backward = !layer.isForward();
    }
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

std::unique_ptr<fb::ProgramT> DeviceWriter::program(plan::ProgramOp op) {
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
        .push_back(makeTensor(buffer, *buffer.getName(), type, role,
                              fb::Space::io, buffer.getOffset()));
  }
  SmallVector<plan::LoopOp> loops;
  result->steps = steps(op.getBody().front(), loops);
  result->buffers = buffers(op);
  return result;
}

std::vector<std::unique_ptr<fb::BufferT>>
DeviceWriter::buffers(plan::ProgramOp op) {
  BufferUses uses =
      bufferUses(op, [&](StringRef kernel) { return kernels.lookup(kernel); });
  std::vector<std::unique_ptr<fb::BufferT>> result;
  for (auto buffer : op.getOps<plan::BufferOp>()) {
    auto lives = buffer.getLives();
    if (buffer.getSpace() != plan::Space::arena || !lives)
      continue;
    auto type = cast<MemRefType>(buffer.getMemory().getType());
    fb::BufferT entry;
    if (auto use = uses.find(buffer); use != uses.end())
      entry.use = use->second;
    entry.type = *elementType(type.getElementType());
    entry.shape.assign(type.getShape().begin(), type.getShape().end());
    entry.offset = buffer.getOffset();
    entry.bytes = plan::byteSize(type);
    for (size_t i = 0; i < lives->size(); i += 2) {
      entry.first = static_cast<uint32_t>((*lives)[i]);
      entry.last = static_cast<uint32_t>((*lives)[i + 1]);
      result.push_back(std::make_unique<fb::BufferT>(entry));
    }
  }
  return result;
}

std::unique_ptr<fb::KernelT> DeviceWriter::kernel(tile::KernelOp op) {
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
  for (const CodeObject &object : part.code)
    result->scratch_bytes = std::max<uint64_t>(
        result->scratch_bytes, object.scratch.lookup(op.getSymName()));
  result->summary = op.getSummary().str();
  if (auto flops = op->getAttrOfType<IntegerAttr>(kKernelFlopsAttr))
    result->flops = flops.getInt();
  result->bytes = countTraffic(op);
  if (auto gpu = part.gpu.find(op.getSymName()); gpu != part.gpu.end())
    result->gpu = makeGpuKernel(gpu->second);
  if (tile::GemmAttr gemm = op.getGemmAttr())
    result->gemm = makeGemm(gemm);
  if (auto terms = op->getAttrOfType<IntegerAttr>(kKernelTermsAttr))
    result->terms = terms.getInt();
  for (StringRef name : variantsOf(op)) {
    auto variant = std::make_unique<fb::VariantT>();
    variant->kernel = indexOf(name);
    variant->blocks = kernels.lookup(name)
                          ->getAttrOfType<IntegerAttr>(tile::kBlocksAttr)
                          .getInt();
    result->variants.push_back(std::move(variant));
  }
  return result;
}

std::unique_ptr<fb::CodeObjectT>
DeviceWriter::codeObject(const CodeObject &object) {
  auto result = std::make_unique<fb::CodeObjectT>();
  result->target = object.target;
  result->features = object.features;
  result->elf.assign(object.elf.begin(), object.elf.end());
  for (const std::string &kernel : object.kernels)
    if (kernels.contains(kernel)) // others are never launched
      result->kernels.push_back(indexOf(kernel));
  if (result->kernels.empty() != object.kernels.empty())
    return nullptr;
  return result;
}

llvm::Expected<std::unique_ptr<fb::DeviceCodeT>> DeviceWriter::write() {
  if (llvm::Error error = collectKernels())
    return std::move(error);
  if (llvm::Error error = checkElementTypes())
    return std::move(error);
  if (llvm::Error error = checkAlignment())
    return std::move(error);
  auto result = std::make_unique<fb::DeviceCodeT>();
  result->device = part.device;
  for (auto op : module.getOps<plan::ProgramOp>())
    result->programs.push_back(program(op));
  for (auto &[name, op] : kernels)
    result->kernels.push_back(kernel(op));
  for (const CodeObject &object : part.code)
    if (auto entry = codeObject(object))
      result->code.push_back(std::move(entry));
  return result;
}

} // namespace

llvm::Expected<std::unique_ptr<fb::DeviceCodeT>>
tessera::writeDevice(const DevicePart &part) {
  return DeviceWriter(part).write();
}
