#include "dialects/dist/DistOps.h"
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/overlap/BlockGraph.h"
#include "passes/overlap/Costs.h"
#include "passes/overlap/Overlap.h"
#include "passes/overlap/Sequence.h"
#include "llvm/ADT/TypeSwitch.h"
#include <map>

using namespace mlir;
using namespace tessera;
using namespace tessera::overlap;

namespace tessera {
#define GEN_PASS_DEF_BUCKETCOLLECTIVES
#include "passes/overlap/Passes.h.inc"
} // namespace tessera

static RankedTensorType packedType(TypeRange types, int64_t pieces) {
  return RankedTensorType::get(
      dist::packingOf(types, pieces).pieceSize * pieces,
      cast<RankedTensorType>(types.front()).getElementType());
}

// `like`, along the one dimension of a pack.
static Value createPacked(OpBuilder &builder, Location loc, Operation *like,
                          Value input, RankedTensorType result) {
  OperationState state(loc, like->getName());
  state.addOperands(input);
  state.addTypes(result);
  state.addAttributes(like->getAttrs());
  Operation *op = builder.create(state);
  llvm::TypeSwitch<Operation *>(op)
      .Case<dist::AllGatherOp, dist::ReduceScatterOp>(
          [](auto sharded) { sharded.setDim(0); });
  return op->getResult(0);
}

// Replaces several collectives by one of a pack. It is built at the end of the
// block, which is reordered afterwards.
static Operation *merge(ArrayRef<Operation *> group) {
  Operation *first = group.front();
  OpBuilder builder(first->getBlock()->getTerminator());
  SmallVector<Value> inputs;
  SmallVector<Type> results;
  SmallVector<Location> locations;
  for (Operation *op : group) {
    inputs.push_back(op->getOperand(0));
    results.push_back(op->getResult(0).getType());
    locations.push_back(op->getLoc());
  }
  Location loc = builder.getFusedLoc(locations);
  int64_t members = membersOf(cast<dist::CollectiveOpInterface>(first));
  int64_t before = isa<dist::ReduceScatterOp>(first) ? members : 1;
  int64_t after = isa<dist::AllGatherOp>(first) ? members : 1;
  Value pack = builder.create<dist::PackOp>(
      loc, packedType(TypeRange(ValueRange(inputs)), before), inputs, before);
  Value packed = createPacked(builder, loc, first, pack,
                              packedType(TypeRange(results), after));
  auto unpack =
      builder.create<dist::UnpackOp>(loc, TypeRange(results), packed, after);
  for (auto [op, result] : llvm::zip(group, unpack.getOutputs()))
    op->getResult(0).replaceAllUsesWith(result);
  return packed.getDefiningOp();
}

static LogicalResult bucketBlock(Block &block) {
  std::map<int64_t, SmallVector<Operation *>> groups;
  for (Operation &op : block.without_terminator()) {
    if (auto start = op.getAttrOfType<IntegerAttr>(dist::kStartAttr))
      groups[start.getInt()].push_back(&op);
    else if (isStart(&op))
      return op.emitError("has no ")
             << dist::kStartAttr << "; run order-collectives before";
  }
  for (auto &[number, group] : groups) {
    if (group.size() < 2)
      continue;
    if (!llvm::all_of(group, isStart))
      return group.front()->emitError(
          "has the same dist.start as a loop that contains collectives");
    merge(group);
    for (Operation *op : group)
      op->erase();
  }
  BlockGraph graph(block);
  FailureOr<SmallVector<unsigned>> sequence = sequenceOf(graph);
  if (failed(sequence))
    return failure();
  return reorder(graph, *sequence, computing(graph))
             ? success()
             : contradiction(graph, *sequence);
}

namespace {
class BucketCollectivesPass
    : public tessera::impl::BucketCollectivesBase<BucketCollectivesPass> {
  void runOnOperation() override {
    WalkResult walk = getOperation()->walk([](Operation *op) {
      return hasStarts(op) ? WalkResult(bucketBlock(op->getRegion(0).front()))
                           : WalkResult::advance();
    });
    if (walk.wasInterrupted())
      return signalPassFailure();
  }
};
} // namespace
