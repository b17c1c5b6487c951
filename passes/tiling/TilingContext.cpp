// Launches and the kernels that they share.
#include "passes/tiling/Tiling.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace tessera;

TilingContext::TilingContext(ModuleOp module, ArrayRef<TileTarget> targets)
    : module(module), targets(targets) {}

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

// What tells one kernel from another.
static std::string fullKey(const LaunchSpec &spec) {
  std::string key;
  llvm::raw_string_ostream os(key);
  os << spec.name << '\n' << spec.sizes.size() << '\n';
  for (auto [buffer, access] : llvm::zip_equal(spec.buffers, spec.access))
    os << buffer << ' ' << tile::stringifyAccess(access) << '\n';
  os << spec.key;
  return key;
}

llvm::Expected<std::string> TilingContext::kernelFor(const LaunchSpec &spec,
                                                     Location loc) {
  std::string key = fullKey(spec);
  if (auto it = kernels.find(key); it != kernels.end())
    return it->second;
  unsigned count = names[spec.name]++;
  std::string name =
      count ? spec.name + "_" + std::to_string(count) : spec.name;
  for (const TileTarget &target : targets) {
    OpBuilder builder = OpBuilder::atBlockEnd(kernelModule(target).getBody());
    auto kernel = builder.create<tile::KernelOp>(
        loc, name, spec.skeleton, static_cast<int64_t>(spec.sizes.size()),
        TypeRange(spec.buffers), spec.access, spec.summary);
    if (spec.flops && spec.sizes.empty())
      kernel->setAttr(kKernelFlopsAttr, builder.getI64IntegerAttr(spec.flops));
    builder.setInsertionPointToEnd(&kernel.getBody().front());
    auto terminator = builder.create<tile::ReturnOp>(loc);
    builder.setInsertionPoint(terminator);
    if (llvm::Error error = spec.build(kernel, target, builder))
      return std::move(error);
  }
  kernels[key] = name;
  return name;
}

llvm::Expected<SmallVector<Value>> TilingContext::launch(Operation *at,
                                                         const LaunchSpec &spec,
                                                         ValueRange inputs,
                                                         TypeRange outputs) {
  llvm::Expected<std::string> kernel = kernelFor(spec, at->getLoc());
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
