// Verifiers of rings and of warp-specialized code.
#include "dialects/tile/TileVerifyRoles.h"
#include "dialects/tile/TileOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace tessera::tile;

LogicalResult RingType::verify(function_ref<InFlightDiagnostic()> emitError,
                               int64_t stages, int64_t consumers) {
  if (stages < 1 || stages > 64)
    return emitError() << "a ring must have 1 to 64 stages, got " << stages;
  if (consumers < 1 || consumers > 7)
    return emitError()
           << "a ring must have 1 to 7 warpgroups of consumers, got "
           << consumers;
  return success();
}

LogicalResult MakeRingOp::verify() {
  if (!isa<KernelOp>((*this)->getParentOp()))
    return emitOpError("must be at the top level of a kernel");
  return success();
}

constexpr static int64_t kWarpgroup = 128;   // threads
constexpr static int64_t kRegisters = 65536; // of an SM

// Sums across warps wait for all threads of the block, which warp-specialized
// code must not do. Rows of a tile are within warps.
static LogicalResult verifyReductions(WarpSpecializeOp roles) {
  WalkResult result = roles.walk([&](ReduceOp op) {
    bool alongRows = cast<VectorType>(op.getInput().getType()).getRank() == 2 &&
                     op.getDim() == 1;
    if (alongRows)
      return WalkResult::advance();
    op.emitOpError(
        "in warp-specialized code must reduce along the rows of a tile");
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

LogicalResult WarpSpecializeOp::verify() {
  auto kernel = cast<KernelOp>((*this)->getParentOp());
  std::optional<ArrayRef<int64_t>> warps = kernel.getWarps();
  if (!warps || (*warps)[0] % 4 || (*warps)[1] != 1)
    return emitOpError(
        "requires a kernel whose `warps` are warpgroups, one below "
        "the other");
  if ((*this)->getNextNode() != kernel.getBody().front().getTerminator())
    return emitOpError("must be the last op of a kernel");
  if (std::optional<ArrayRef<int64_t>> registers = getRegisters()) {
    if (registers->size() != 2)
      return emitOpError(
          "`registers` must be the producer's and the consumers'");
    for (int64_t count : *registers)
      if (count < 24 || count > 256 || count % 8)
        return emitOpError(
                   "registers of a thread must be a multiple of 8 from 24 "
                   "to 256, got ")
               << count;
    // setmaxnreg redistributes what the block was launched with: for each
    // thread the same number, a multiple of 8. The rest of the SM stays unused.
    int64_t consumers = (*warps)[0] / 4, threads = kWarpgroup * (1 + consumers);
    int64_t pool = kRegisters / threads / 8 * 8 * threads;
    int64_t all = kWarpgroup * ((*registers)[0] + consumers * (*registers)[1]);
    if (all > pool)
      return emitOpError("takes ") << all << " registers, but a block of "
                                   << threads << " threads has " << pool;
  }
  return verifyReductions(*this);
}

LogicalResult tessera::tile::verifyRole(Operation *op, bool isConsumer) {
  for (Region *region = op->getParentRegion(); region;
       region = region->getParentRegion())
    if (auto roles = dyn_cast<WarpSpecializeOp>(region->getParentOp()))
      if (region == (isConsumer ? &roles.getConsumers() : &roles.getProducer()))
        return success();
  return op->emitOpError("must be in the code of ")
         << (isConsumer ? "consumers" : "a producer");
}

// The bytes of a whole stage.
static int64_t stageBytes(MemRefType staged) {
  return staged.getNumElements() / staged.getDimSize(0) *
         staged.getElementTypeBitWidth() / 8;
}

LogicalResult AcquireOp::verify() {
  int64_t bytes = 0;
  for (Operation *user : getStage().getUsers())
    if (auto copy = dyn_cast<BulkCopyOp>(user)) {
      if (copy.getRing() != getRing())
        return emitOpError("releases a stage that is filled on another ring");
      bytes += stageBytes(copy.getTarget().getType());
    }
  if (bytes != static_cast<int64_t>(getBytes()))
    return emitOpError("expects ")
           << getBytes() << " bytes, but its copies have " << bytes;
  return verifyRole(*this, /*isConsumer=*/false);
}

LogicalResult BulkCopyOp::verify() {
  MemRefType source = getSource().getType(), target = getTarget().getType();
  auto shared = dyn_cast_or_null<SharedAttr>(target.getMemorySpace());
  if (!shared || shared.getLayout() != Layout::swizzled ||
      target.getRank() != 3 || !target.hasStaticShape())
    return emitOpError("must fill [stages, rows, columns] of "
                       "#tile.shared<swizzled>, got ")
           << target;
  if (target.getDimSize(0) != getRing().getType().getStages())
    return emitOpError("fills ") << target << ", whose stages are not those of "
                                 << getRing().getType();
  if (source.getElementType() != target.getElementType())
    return emitOpError("element types differ: ") << source << " and " << target;
  int64_t rank = source.getRank();
  ArrayRef<int64_t> along = getAlong();
  if (source.getMemorySpace() || !source.hasStaticShape() || rank > 5)
    return emitOpError("must copy from a static view of global memory with at "
                       "most five dimensions, got ")
           << source;
  if (static_cast<int64_t>(getIndices().size()) != rank)
    return emitOpError("needs ")
           << rank << " indices, got " << getIndices().size();
  if (along.size() != 2 || along[0] == along[1] ||
      llvm::any_of(along, [&](int64_t d) { return d < 0 || d >= rank; }))
    return emitOpError("`along` names two dimensions of ") << source;
  SmallVector<int64_t> strides;
  int64_t offset, bits = source.getElementTypeBitWidth();
  if (failed(getStridesAndOffset(source, strides, offset)) ||
      ShapedType::isDynamic(offset) || offset * bits % 128)
    return emitOpError("needs a source at a multiple of 16 bytes, got ")
           << source;
  // The stride of a single element does not matter.
  for (auto [dim, stride] : llvm::enumerate(strides))
    if (static_cast<int64_t>(dim) == along[1]
            ? stride != 1
            : source.getDimSize(dim) > 1 &&
                  (ShapedType::isDynamic(stride) || stride <= 0 ||
                   stride * bits % 128))
      return emitOpError("columns must be contiguous and other strides "
                         "multiples of 16 bytes, got ")
             << source;
  if (target.getDimSize(1) > 256)
    return emitOpError("copies at most 256 rows, got ") << target;
  return verifyRole(*this, /*isConsumer=*/false);
}

LogicalResult AwaitOp::verify() {
  return verifyRole(*this, /*isConsumer=*/true);
}

LogicalResult ReleaseOp::verify() {
  return verifyRole(*this, /*isConsumer=*/true);
}

LogicalResult PingPongOp::verify() {
  return verifyRole(*this, /*isConsumer=*/true);
}

LogicalResult MmaWaitOp::verify() {
  if (static_cast<int64_t>(getPending()) < 0)
    return emitOpError("`pending` is not negative");
  if (getSum().getType() != getResult().getType())
    return emitOpError("must have its operand's type, got ")
           << getResult().getType();
  return verifyRole(*this, /*isConsumer=*/true);
}
