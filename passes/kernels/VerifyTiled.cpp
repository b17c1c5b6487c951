// The postcondition of tiling.
#include "dialects/dist/DistOps.h"
#include "dialects/graph/GraphOps.h"
#include "dialects/tile/KernelBlocks.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/fusion/FusionGraph.h"
#include "passes/kernels/Passes.h"
#include "passes/kernels/Tiling.h"
#include "passes/kernels/gpu/SharedAccess.h"

using namespace mlir;
using namespace tessera;

namespace tessera {
#define GEN_PASS_DEF_VERIFYTILED
#include "passes/kernels/Passes.h.inc"
} // namespace tessera

static LogicalResult verifyOp(Operation *op) {
  if (auto slice = dyn_cast<graph::SliceOp>(op)) {
    if (hasAddress(slice))
      return success();
    return op->emitError(
        "slice has gaps or does not start at a multiple of 64 bytes: "
        "it should have become a kernel");
  }
  if (auto concat = dyn_cast<graph::ConcatOp>(op); concat && isStack(concat))
    return success();
  if (isa<tile::LaunchOp, graph::LoopOp, graph::YieldOp, graph::ConstantOp,
          graph::ReshapeOp, graph::DynamicSliceOp, graph::DynamicUpdateOp,
          func::ReturnOp, dist::PackOp, dist::UnpackOp>(op) ||
      isCollective(op))
    return success();
  return op->emitError()
         << "'" << op->getName()
         << "' is neither a launch, a loop, a collective nor "
            "a contiguous view: fusion or tile-clusters missed it";
}

// The memref types of the buffers that the launch must pass.
static LogicalResult verifyBuffers(tile::LaunchOp launch, tile::KernelOp kernel,
                                   bool inputs, TypeRange given) {
  auto wanted = inputs ? tile::Access::write : tile::Access::read;
  SmallVector<MemRefType> types;
  for (auto [i, buffer] : llvm::enumerate(kernel.getBuffers()))
    if (kernel.getBufferAccess(i) != wanted)
      types.push_back(cast<MemRefType>(buffer.getType()));
  StringRef what = inputs ? "operands" : "results";
  if (given.size() != types.size() * launch.getNumInstances())
    return launch.emitError()
           << "kernel @" << kernel.getSymName() << " takes " << types.size()
           << " " << what << " an instance, got " << given.size() << " for "
           << launch.getNumInstances();
  for (auto [i, type] : llvm::enumerate(given)) {
    auto tensor = cast<RankedTensorType>(type);
    MemRefType memref = types[i % types.size()];
    if (memref.hasStaticShape() &&
        memref.getNumElements() != tensor.getNumElements())
      return launch.emitError()
             << what << " " << i << " is " << tensor << " but kernel @"
             << kernel.getSymName() << " expects " << memref;
  }
  return success();
}

static LogicalResult verifyLaunch(tile::LaunchOp launch,
                                  tile::KernelModules &kernels) {
  for (ModuleOp target : kernels.targets()) {
    if (!target->hasAttr(kTargetAttr))
      continue;
    tile::KernelOp kernel = kernels.lookup(target, launch.getKernel());
    if (!kernel)
      return launch.emitError()
             << "kernel @" << launch.getKernel() << " is not in module @"
             << target.getSymName().value_or("");
    if (static_cast<int64_t>(launch.getSizes().size()) !=
        static_cast<int64_t>(kernel.getDynamicSizes()) *
            launch.getNumInstances())
      return launch.emitError()
             << "kernel @" << launch.getKernel() << " takes "
             << kernel.getDynamicSizes() << " sizes an instance, got "
             << launch.getSizes().size();
    if (failed(verifyBuffers(launch, kernel, true,
                             launch.getInputs().getTypes())) ||
        failed(verifyBuffers(launch, kernel, false,
                             launch.getOutputs().getTypes())))
      return failure();
  }
  return kernels.verifyBlocks(launch, launch.getKernel(), launch.getBlocks());
}

// The runtime may launch the variants of a kernel instead.
static LogicalResult verifyVariants(tile::KernelOp kernel,
                                    SymbolTableCollection &symbols) {
  auto variants = kernel->getAttrOfType<ArrayAttr>(kKernelVariantsAttr);
  if (!variants)
    return success();
  for (Attribute each : variants) {
    auto name = dyn_cast<FlatSymbolRefAttr>(each);
    auto other =
        name ? symbols.lookupNearestSymbolFrom<tile::KernelOp>(kernel, name)
             : tile::KernelOp();
    if (!other || !other->hasAttr(tile::kBlocksAttr))
      return kernel.emitError() << "variant " << each
                                << " is not a kernel with a number of blocks";
    if (TypeRange(ValueRange(kernel.getBuffers())) !=
            TypeRange(ValueRange(other.getBuffers())) ||
        kernel.getAccess() != other.getAccess() ||
        kernel.getDynamicSizes() != other.getDynamicSizes())
      return kernel.emitError() << "variant " << each << " takes other buffers";
  }
  return success();
}

namespace {

class VerifyTiledPass : public tessera::impl::VerifyTiledBase<VerifyTiledPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    tile::KernelModules kernels(module);
    bool failed_ = false;
    for (auto function : module.getOps<func::FuncOp>())
      function.getBody().walk([&](Operation *op) {
        failed_ |= failed(verifyOp(op));
        if (auto launch = dyn_cast<tile::LaunchOp>(op))
          failed_ |= failed(verifyLaunch(launch, kernels));
      });
    SymbolTableCollection symbols;
    module.walk([&](tile::KernelOp kernel) {
      failed_ |= failed(verifyVariants(kernel, symbols));
    });
    for (auto kernels : module.getOps<ModuleOp>())
      if (gpu::isOfGpu(kernels))
        for (auto kernel : kernels.getOps<tile::KernelOp>())
          failed_ |= failed(gpu::verifyBarriers(kernel.getBody().front()));
    if (failed_)
      signalPassFailure();
  }
};

} // namespace
