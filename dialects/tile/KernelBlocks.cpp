#include "dialects/tile/KernelBlocks.h"

using namespace mlir;
using namespace tessera::tile;

KernelOp KernelModules::lookup(ModuleOp target, StringRef name) {
  return tables.lookupSymbolIn<KernelOp>(
      target, StringAttr::get(target.getContext(), name));
}

LogicalResult KernelModules::verifyBlocks(Operation *launch, StringRef name,
                                          ArrayRef<int64_t> blocks) {
  for (ModuleOp target : modules) {
    KernelOp kernel = lookup(target, name);
    auto made = kernel ? kernel->getAttrOfType<IntegerAttr>(kBlocksAttr)
                       : IntegerAttr();
    for (int64_t count : blocks)
      if (made && count != made.getInt())
        return launch->emitError() << "kernel @" << name << " is made for "
                                   << made.getInt() << " blocks, got " << count;
  }
  return success();
}
