#include "passes/kernels/gpu/SharedAccess.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/Tiling.h"

using namespace mlir;
using namespace tessera;

static Value rootOf(Value memory) {
  while (auto view = memory.getDefiningOp<memref::ReinterpretCastOp>())
    memory = view.getSource();
  return memory;
}

static bool isSwizzled(MemRefType type) {
  auto space = dyn_cast_or_null<tile::SharedAttr>(type.getMemorySpace());
  return space && space.getLayout() == tile::Layout::swizzled;
}

std::optional<gpu::SharedAccess> gpu::accessOf(Operation *op) {
  if (auto load = dyn_cast<tile::LoadOp>(op)) {
    if (isSwizzled(load.getMemory().getType()))
      return std::nullopt;
    return SharedAccess{rootOf(load.getMemory()), false, false};
  }
  if (auto store = dyn_cast<tile::StoreOp>(op))
    return SharedAccess{rootOf(store.getMemory()), true, false};
  if (auto load = dyn_cast<memref::LoadOp>(op))
    return SharedAccess{rootOf(load.getMemRef()), false, true};
  if (auto store = dyn_cast<memref::StoreOp>(op))
    return SharedAccess{rootOf(store.getMemRef()), true, true};
  return std::nullopt;
}

bool gpu::isBarrier(Operation *op) {
  return isa<tile::BarrierOp, tile::WaitOp>(op);
}

bool gpu::isOfGpu(ModuleOp kernels) {
  auto name = kernels->getAttrOfType<StringAttr>(kTargetAttr);
  std::optional<TileTarget> target =
      name ? lookupTileTarget(name.getValue()) : std::nullopt;
  return target && target->gpu;
}
