// Collectives of dist: their buffers and their plan.collective.
#include "passes/planning/ProgramPlanner.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::planning;
using graph::tensorType;

RankedTensorType tessera::planning::typeOf(Value value) {
  if (auto pending = dyn_cast<dist::PendingType>(value.getType()))
    return pending.getTensor();
  return tensorType(value);
}

//===--- attributes -------------------------------------------------------===//

static plan::Reduction toPlan(dist::ReduceKind kind) {
  return kind == dist::ReduceKind::sum ? plan::Reduction::sum
                                       : plan::Reduction::max;
}

// The rows for one member are one run of memory only along the first dimension
// that has more than one entry.
static LogicalResult requireFirst(Operation *op, int64_t dim,
                                  RankedTensorType type) {
  for (int64_t size : type.getShape().take_front(dim))
    if (size != 1)
      return op->emitOpError("runs along dimension ")
             << dim << " of " << type
             << "; buffers are dense, transpose it to the front";
  return success();
}

static int64_t membersOf(dist::CollectiveOpInterface op) {
  auto mesh =
      op->getParentOfType<ModuleOp>().lookupSymbol<dist::MeshOp>(op.getMesh());
  return dist::deviceCount(
      mesh, llvm::to_vector(op.getAxes().getAsRange<dist::AxisRefAttr>()));
}

// Elements of each member: `shares` entries along the dimension, or equal ones.
static SmallVector<int64_t> countsOf(dist::CollectiveOpInterface op,
                                     std::optional<ArrayRef<int64_t>> shares,
                                     RankedTensorType all, int64_t dim) {
  if (!shares) {
    int64_t members = membersOf(op);
    return SmallVector<int64_t>(members, all.getNumElements() / members);
  }
  int64_t size = all.getDimSize(dim);
  int64_t row = size ? all.getNumElements() / size : 0;
  return llvm::map_to_vector(*shares,
                             [&](int64_t share) { return share * row; });
}

static FailureOr<CollectiveSpec> describe(dist::AllReduceOp op) {
  return CollectiveSpec{plan::CollectiveKind::all_reduce, toPlan(op.getKind())};
}

static FailureOr<CollectiveSpec> describe(dist::AllGatherOp op) {
  int64_t dim = op.getDim();
  if (failed(requireFirst(op, dim, tensorType(op.getInput()))))
    return failure();
  CollectiveSpec spec{plan::CollectiveKind::all_gather};
  spec.counts = countsOf(op, op.getShares(), typeOf(op.getResult()), dim);
  return spec;
}

static FailureOr<CollectiveSpec> describe(dist::ReduceScatterOp op) {
  int64_t dim = op.getDim();
  if (failed(requireFirst(op, dim, tensorType(op.getInput()))))
    return failure();
  CollectiveSpec spec{plan::CollectiveKind::reduce_scatter,
                      toPlan(op.getKind())};
  spec.counts = countsOf(op, op.getShares(), tensorType(op.getInput()), dim);
  return spec;
}

static FailureOr<CollectiveSpec> describe(dist::AllToAllOp op) {
  RankedTensorType type = tensorType(op.getInput());
  if (failed(requireFirst(op, op.getSplitDim(), type)) ||
      failed(requireFirst(op, op.getJoinDim(), type)))
    return failure();
  CollectiveSpec spec{plan::CollectiveKind::all_to_all};
  spec.counts = countsOf(op, std::nullopt, type, 0);
  return spec;
}

static FailureOr<CollectiveSpec> describe(dist::PermuteOp op) {
  CollectiveSpec spec{plan::CollectiveKind::permute};
  spec.targets = SmallVector<int64_t>(op.getTargets());
  return spec;
}

static FailureOr<CollectiveSpec> describe(dist::ExchangeRowsOp op) {
  return CollectiveSpec{plan::CollectiveKind::exchange_rows};
}

FailureOr<CollectiveSpec> tessera::planning::specOf(Operation *collective) {
  return llvm::TypeSwitch<Operation *, FailureOr<CollectiveSpec>>(collective)
      .Case<dist::AllReduceOp, dist::AllGatherOp, dist::ReduceScatterOp,
            dist::AllToAllOp, dist::ExchangeRowsOp, dist::PermuteOp>(
          [](auto op) -> FailureOr<CollectiveSpec> {
            FailureOr<CollectiveSpec> spec = describe(op);
            if (failed(spec))
              return failure();
            for (auto axis :
                 op.getAxes().template getAsRange<dist::AxisRefAttr>()) {
              if (!axis.isWhole())
                return op->emitOpError("runs along a part of the axis '")
                       << axis.getName()
                       << "'; give the mesh an axis for each part";
              spec->axes.push_back(axis.getName());
            }
            return spec;
          });
}

//===--- buffers ----------------------------------------------------------===//

LogicalResult ProgramPlanner::planCollective(Operation *op, size_t depth,
                                             std::vector<Step> &out) {
  if (failed(specOf(op)))
    return failure();
  Value output = op->getResult(0);
  bool isStarted = isa<dist::PendingType>(output.getType());
  if (isStarted && (!output.hasOneUse() ||
                    (*output.user_begin())->getBlock() != op->getBlock()))
    return op->emitOpError(
        "is started, but not waited for once in the block where it starts");
  Step step{Step::collective, op->getLoc(), op, {}, {}};
  std::optional<Place> place;
  if (cast<dist::CollectiveOpInterface>(op).isInPlace()) { // or on a copy
    Value input = op->getOperand(0);
    place = placeOver(op, input, output);
    if (!place) {
      place = placeFresh(output, depth);
      if (failed(initialize(input, *place, op, out)))
        return failure();
    }
  } else {
    for (Value operand : op->getOperands()) { // counts of rows follow the rows
      FailureOr<Typed> from = read(operand, op, depth, out);
      if (failed(from))
        return failure();
      step.operands.push_back(*from);
    }
    place = placeFresh(output, depth);
  }
  put(output, *place);
  step.operands.push_back({*place, typeOf(output)});
  if (isStarted)
    started[output] = step.operands;
  out.push_back(std::move(step));
  return success();
}

LogicalResult ProgramPlanner::planWait(dist::WaitOp wait,
                                       std::vector<Step> &out) {
  put(wait.getResult(), locations.lookup(wait.getPending()));
  out.push_back(
      {Step::wait, wait.getLoc(), wait, started.lookup(wait.getPending()), {}});
  return success();
}
