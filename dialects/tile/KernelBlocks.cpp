#include "dialects/tile/KernelBlocks.h"

using namespace mlir;
using namespace tessera::tile;

LogicalResult tessera::tile::verifyBlocks(Operation *launch, ModuleOp module,
                                          StringRef name,
                                          ArrayRef<int64_t> blocks) {
  for (auto kernels : module.getOps<ModuleOp>()) {
    auto kernel = kernels.lookupSymbol<KernelOp>(name);
    auto made = kernel ? kernel->getAttrOfType<IntegerAttr>(kBlocksAttr)
                       : IntegerAttr();
    for (int64_t count : blocks)
      if (made && count != made.getInt())
        return launch->emitError() << "kernel @" << name << " is made for "
                                   << made.getInt() << " blocks, got " << count;
  }
  return success();
}
