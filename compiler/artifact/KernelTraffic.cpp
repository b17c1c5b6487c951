#include "compiler/artifact/KernelTraffic.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/Tiling.h"

using namespace mlir;
using namespace tessera;

// Whether the value follows from what the kernel reads.
static bool comesFromMemory(Value value) {
  auto reads = [](Operation *op) {
    return isa<memref::LoadOp, tile::LoadOp>(op);
  };
  Operation *op = value.getDefiningOp();
  if (!op)
    return false;
  SetVector<Operation *> slice;
  BackwardSliceOptions options;
  options.omitBlockArguments = true;
  getBackwardSlice(op, &slice, options);
  return reads(op) || llvm::any_of(slice, reads);
}

namespace {

/// What a kernel does with one buffer.
struct Use {
  int64_t reach = 0;     ///< elements, views added up
  bool gathered = false; ///< by indices out of memory
  bool known = true;

  void visit(Value memory) {
    bool direct = false;
    for (Operation *user : memory.getUsers()) {
      if (auto view = dyn_cast<memref::ReinterpretCastOp>(user)) {
        visit(view.getResult());
        continue;
      }
      direct = true;
      for (Value operand : user->getOperands())
        gathered |= operand.getType().isIndex() && comesFromMemory(operand);
    }
    if (!direct)
      return;
    auto type = cast<MemRefType>(memory.getType());
    known &= type.hasStaticShape();
    reach += type.hasStaticShape() ? type.getNumElements() : 0;
  }
};

} // namespace

int64_t tessera::countTraffic(tile::KernelOp kernel) {
  int64_t bytes = 0;
  if (auto gathered = kernel->getAttrOfType<IntegerAttr>(kGatheredBytesAttr))
    bytes = gathered.getInt();
  for (auto [i, buffer] : llvm::enumerate(kernel.getBuffers())) {
    auto type = cast<MemRefType>(buffer.getType());
    Use use;
    use.visit(buffer);
    if (!type.hasStaticShape() || !use.known)
      return 0;
    if (use.gathered)
      continue;
    int64_t size = std::max<int64_t>(type.getElementTypeBitWidth() / 8, 1);
    int64_t passes =
        kernel.getBufferAccess(i) == tile::Access::read_write ? 2 : 1;
    bytes += passes * size * std::min(use.reach, type.getNumElements());
  }
  return bytes;
}
