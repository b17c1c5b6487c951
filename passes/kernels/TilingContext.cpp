// Launches and the kernels that they share.
#include "dialects/tile/KernelBlocks.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/kernels/Tiling.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace tessera;

LogicalResult tessera::lookupTargets(ArrayRef<std::string> names, Location loc,
                                     SmallVectorImpl<TileTarget> &targets) {
  if (names.empty())
    llvm::append_range(targets, cpuTileTargets());
  for (const std::string &name : names) {
    if (name == "cpu") {
      llvm::append_range(targets, cpuTileTargets());
      continue;
    }
    std::optional<TileTarget> target = lookupTileTarget(name);
    if (!target)
      return emitError(loc) << "unknown target '" << name
                            << "'; expected one of " << knownTargets();
    targets.push_back(*target);
  }
  for (const TileTarget &target : targets)
    if (targets.size() > 1 && target.gpu)
      return emitError(loc) << target.name << " must be the only target";
  return success();
}

TilingContext::TilingContext(ModuleOp module, ArrayRef<TileTarget> targets,
                             bool allVariants)
    : module(module), targets(targets), allVariants(allVariants) {}

bool TilingContext::hasMatrixTiles() const {
  return llvm::any_of(
      targets, [](const TileTarget &target) { return target.matrixTiles; });
}

ModuleOp TilingContext::kernelModule(const TileTarget &target) {
  for (auto nested : module.getOps<ModuleOp>())
    if (auto name = nested->getAttrOfType<StringAttr>(kTargetAttr))
      if (name.getValue() == target.name)
        return nested;
  std::string symbol = target.name;
  for (char &c : symbol)
    if (!llvm::isAlnum(c))
      c = '_';
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  auto nested = builder.create<ModuleOp>(module.getLoc(), symbol);
  nested->setAttr(kTargetAttr, builder.getStringAttr(target.name));
  return nested;
}

// Identifies a kernel.
static std::string fullKey(const LaunchSpec &spec) {
  std::string key;
  llvm::raw_string_ostream os(key);
  os << spec.name << '\n' << spec.sizes.size() << '\n';
  for (auto [buffer, access] : llvm::zip_equal(spec.buffers, spec.access))
    os << buffer << ' ' << tile::stringifyAccess(access) << '\n';
  os << spec.key;
  return key;
}

// "transformer.h.0.attn.c_proj.weight" → "c_proj_weight"; results are named
// after their kernel.
static std::string nameOf(Value value) {
  if (auto launch = value.getDefiningOp<tile::LaunchOp>()) {
    StringRef kernel = launch.getKernel();
    if (kernel.starts_with("convert") && launch.getInputs().size() == 1)
      return nameOf(launch.getInputs()[0]); // the same in another type
    std::string name = (kernel.rtrim("0123456789").rtrim('_') + "_out").str();
    unsigned number = cast<OpResult>(value).getResultNumber();
    return number ? name + std::to_string(number) : name;
  }
  std::string path;
  if (auto argument = dyn_cast<BlockArgument>(value))
    if (auto function =
            dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp()))
      for (StringRef attr : {graph::kStateAttr, graph::kInputAttr})
        if (auto name = function.getArgAttrOfType<StringAttr>(
                argument.getArgNumber(), attr))
          path = name.getValue().str();
  value.getLoc()->walk([&](Location inner) {
    auto name = dyn_cast<NameLoc>(inner);
    if (name && path.empty())
      path = name.getName().str();
    return WalkResult::advance();
  });
  auto [rest, last] = StringRef(path).rsplit('.');
  std::string name = last.empty() ? rest.str() : last.str();
  StringRef before =
      rest.rsplit('.').second.empty() ? rest : rest.rsplit('.').second;
  if (!last.empty() && !before.empty() && !llvm::isDigit(before.front()))
    name = (before + "_" + last).str();
  for (char &c : name)
    if (!llvm::isAlnum(c))
      c = '_';
  return name.empty() || llvm::isDigit(name.front()) ? "in" : name;
}

static std::string shapeOf(Type type) {
  std::string text;
  for (int64_t size : cast<RankedTensorType>(type).getShape())
    text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

// Names and shapes of a kernel's buffers, as its first launch has them.
static void describeBuffers(tile::KernelOp kernel, ValueRange inputs,
                            TypeRange outputs) {
  Builder b(kernel.getContext());
  size_t input = 0, output = 0;
  unsigned first = 1 + kernel.getDynamicSizes();
  for (auto [i, buffer] : llvm::enumerate(kernel.getBuffers())) {
    tile::Access access = kernel.getBufferAccess(i);
    bool isInput = access != tile::Access::write;
    Type type = isInput ? inputs[input].getType() : outputs[output];
    kernel.setArgAttr(first + i, kBufferNameAttr,
                      b.getStringAttr(isInput ? nameOf(inputs[input]) : "out"));
    if (cast<MemRefType>(buffer.getType()).hasStaticShape())
      kernel.setArgAttr(first + i, kBufferShapeAttr,
                        b.getStringAttr(shapeOf(type)));
    input += isInput;
    output += access != tile::Access::read;
  }
}

llvm::Expected<tile::KernelOp>
TilingContext::makeKernel(StringRef name, int64_t blocks,
                          const BuildKernel &build, const LaunchSpec &spec,
                          const TileTarget &target, Location loc,
                          ValueRange inputs, TypeRange outputs) {
  OpBuilder builder = OpBuilder::atBlockEnd(kernelModule(target).getBody());
  auto kernel = builder.create<tile::KernelOp>(
      loc, name, spec.skeleton, static_cast<int64_t>(spec.sizes.size()),
      TypeRange(spec.buffers), spec.access, spec.summary);
  if (spec.flops && spec.sizes.empty())
    kernel->setAttr(kKernelFlopsAttr, builder.getI64IntegerAttr(spec.flops));
  if (spec.gatheredBytes)
    kernel->setAttr(kGatheredBytesAttr,
                    builder.getI64IntegerAttr(spec.gatheredBytes));
  if (spec.sizes.empty())
    kernel->setAttr(tile::kBlocksAttr, builder.getI64IntegerAttr(blocks));
  if (target.gpu)
    describeBuffers(kernel, inputs, outputs);
  builder.setInsertionPointToEnd(&kernel.getBody().front());
  auto terminator = builder.create<tile::ReturnOp>(loc);
  builder.setInsertionPoint(terminator);
  if (llvm::Error error = build(kernel, target, builder))
    return std::move(error);
  return kernel;
}

llvm::Error TilingContext::makeVariants(tile::KernelOp kernel,
                                        const LaunchSpec &spec,
                                        const TileTarget &target,
                                        ValueRange inputs, TypeRange outputs) {
  SmallVector<Attribute> names;
  for (const KernelVariant &variant : spec.variants) {
    std::string name = (kernel.getSymName() + variant.suffix).str();
    llvm::Expected<tile::KernelOp> made =
        makeKernel(name, variant.blocks, variant.build, spec, target,
                   kernel.getLoc(), inputs, outputs);
    if (!made)
      return made.takeError();
    names.push_back(FlatSymbolRefAttr::get(*made));
  }
  if (names.empty())
    return llvm::Error::success();
  Builder b(kernel.getContext());
  kernel->setAttr(kKernelVariantsAttr, b.getArrayAttr(names));
  kernel->setAttr(kKernelTermsAttr, b.getI64IntegerAttr(spec.terms));
  return llvm::Error::success();
}

llvm::Expected<std::string> TilingContext::kernelFor(const LaunchSpec &spec,
                                                     Location loc,
                                                     ValueRange inputs,
                                                     TypeRange outputs) {
  std::string key = fullKey(spec);
  if (auto it = kernels.find(key); it != kernels.end())
    return it->second;
  unsigned count = names[spec.name]++;
  std::string name =
      count ? spec.name + "_" + std::to_string(count) : spec.name;
  for (const TileTarget &target : targets) {
    llvm::Expected<tile::KernelOp> kernel = makeKernel(
        name, spec.blocks, spec.build, spec, target, loc, inputs, outputs);
    if (!kernel)
      return kernel.takeError();
    if (llvm::Error error =
            makeVariants(*kernel, spec, target, inputs, outputs))
      return std::move(error);
  }
  kernels[key] = name;
  return name;
}

llvm::Expected<SmallVector<Value>> TilingContext::launch(Operation *at,
                                                         const LaunchSpec &spec,
                                                         ValueRange inputs,
                                                         TypeRange outputs) {
  llvm::Expected<std::string> kernel =
      kernelFor(spec, at->getLoc(), inputs, outputs);
  if (!kernel)
    return kernel.takeError();
  OpBuilder builder(at);
  auto launch = builder.create<tile::LaunchOp>(
      at->getLoc(), outputs,
      FlatSymbolRefAttr::get(builder.getContext(), *kernel), inputs,
      builder.getDenseI64ArrayAttr(spec.blocks),
      builder.getDenseI64ArrayAttr(spec.sizes),
      spec.reuse.empty() ? DenseI64ArrayAttr()
                         : builder.getDenseI64ArrayAttr(spec.reuse));
  return SmallVector<Value>(launch.getOutputs());
}
