// The pass: rows of a GPU's intermediates begin at aligned addresses.
#include "passes/fusion/PaddedRows.h"
#include "passes/kernels/Passes.h"
#include "passes/kernels/Tiling.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

namespace tessera {
#define GEN_PASS_DEF_PADROWS
#include "passes/kernels/Passes.h.inc"
} // namespace tessera

// Bytes at whose multiples rows begin: a sector of the L2 cache, which is also
// what tensor maps (16 bytes) need.
static constexpr int64_t kRowAlignment = 32;
// Of shorter rows the padding would be much of the memory.
static constexpr int64_t kLeastRowBytes = 256;

// The tensor with padded rows; none if they are aligned, or short.
static std::optional<RankedTensorType> paddedType(RankedTensorType type) {
  int64_t bytes = type.getElementTypeBitWidth() / 8;
  if (type.getRank() < 2 || !isa<FloatType>(type.getElementType()))
    return {};
  SmallVector<int64_t> shape(type.getShape());
  int64_t row = shape.back() * bytes;
  if (row % kRowAlignment == 0 || row < kLeastRowBytes ||
      row == type.getNumElements() * bytes)
    return {};
  shape.back() = llvm::alignTo(row, kRowAlignment) / bytes;
  return RankedTensorType::get(shape, type.getElementType());
}

// Whether operand or result `i` is summed in place.
static bool accumulates(ClusterOp cluster, size_t i, bool isResult) {
  ArrayRef<int64_t> pairs =
      cluster.getAccumulates().value_or(ArrayRef<int64_t>());
  for (size_t p = isResult; p < pairs.size(); p += 2)
    if (pairs[p] == static_cast<int64_t>(i))
      return true;
  return false;
}

// Kernels of these clusters write rows one by one, at any distance.
static bool writesRows(ClusterOp cluster) {
  return cluster.getKind() == ClusterKind::row ||
         cluster.getKind() == ClusterKind::contraction;
}

// Kernels of these read through a slice as well as without one.
static bool readsRows(OpOperand &use, ClusterOp producer) {
  auto reader = dyn_cast<ClusterOp>(use.getOwner());
  return reader &&
         (writesRows(reader) || reader.getKind() == ClusterKind::column) &&
         reader->getBlock() == producer->getBlock() &&
         reader->getAttr(kLayerAttr) == producer->getAttr(kLayerAttr) &&
         !accumulates(reader, use.getOperandNumber(), /*isResult=*/false);
}

static bool mayPad(ClusterOp cluster, OpResult result) {
  auto isRead = [&](OpOperand &use) { return readsRows(use, cluster); };
  return writesRows(cluster) && !result.use_empty() &&
         !accumulates(cluster, result.getResultNumber(), /*isResult=*/true) &&
         llvm::all_of(result.getUses(), isRead);
}

// The reader's argument becomes a slice of the padded one.
static void readPadded(OpOperand &use, RankedTensorType padded) {
  Block &body = cast<ClusterOp>(use.getOwner()).getBody().front();
  BlockArgument argument = body.getArgument(use.getOperandNumber());
  RankedTensorType type = tensorType(argument);
  argument.setType(padded);
  OpBuilder b = OpBuilder::atBlockBegin(&body);
  auto slice = b.create<SliceOp>(
      argument.getLoc(), type, argument,
      SmallVector<int64_t>(static_cast<size_t>(type.getRank()), 0));
  argument.replaceAllUsesExcept(slice, slice);
}

static void pad(ClusterOp cluster, OpResult result, RankedTensorType padded) {
  Operation *yield = cluster.getBody().front().getTerminator();
  OpOperand &yielded = yield->getOpOperand(result.getResultNumber());
  OpBuilder b(yield);
  auto pad = b.create<PadOp>(
      yielded.get().getLoc(), padded, yielded.get(),
      SmallVector<int64_t>(static_cast<size_t>(padded.getRank()), 0));
  pad->setAttr(kUnreadAttr, b.getUnitAttr());
  yielded.set(pad);
  result.setType(padded);
  for (OpOperand &use : result.getUses())
    readPadded(use, padded);
}

namespace {
class PadRowsPass : public tessera::impl::PadRowsBase<PadRowsPass> {
  using PadRowsBase::PadRowsBase;

  LogicalResult initialize(MLIRContext *context) override {
    return lookupTargets(
        targets, NameLoc::get(StringAttr::get(context, "pad-rows")), chosen);
  }

  void runOnOperation() override {
    if (!TilingContext(getOperation(), chosen).isGpu())
      return;
    getOperation().walk([](ClusterOp cluster) {
      for (OpResult result : cluster->getResults())
        if (std::optional<RankedTensorType> type =
                paddedType(tensorType(result)))
          if (mayPad(cluster, result))
            pad(cluster, result, *type);
    });
  }

  SmallVector<TileTarget> chosen;
};
} // namespace
